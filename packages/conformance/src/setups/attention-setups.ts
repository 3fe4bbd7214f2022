/** The attention problems for every attention op. */
import { cacheDTypes } from '@winnow/ops';
import { dtypeInfo } from '@winnow/tensor';
import { lengths } from '../values.js';
import type { AttentionSetup } from './attention-setup.js';

const base: Omit<AttentionSetup, 'name'> = {
  numHeads: 4,
  numKvHeads: 2,
  headDim: 16,
  valueDim: 16,
  blockSize: 8,
  keyDType: 'f32',
  valueDType: 'f32',
  contextLengths: [19],
  queries: [
    [0, 18],
    [0, 4],
  ],
  isShuffled: false,
  causal: true,
  window: 0,
  softCap: 0,
};

function setup(name: string, changes: Partial<AttentionSetup>): AttentionSetup {
  return { ...base, ...changes, name };
}

function prefill(length: number): [number, number][] {
  return Array.from({ length }, (_, position) => [0, position]);
}

/** Three sequences, one of them empty, with interleaved queries, positions in any order and empty slots. */
const paged: Partial<AttentionSetup> = {
  contextLengths: [21, 0, 40],
  queries: [
    [2, 39],
    [0, 20],
    [1, 5],
    [2, 3],
    [0, 0],
  ],
  isShuffled: true,
};

/**
 * A whole register of query heads per KV head, and consecutive chunks of keys: kernels may have special paths for
 * these.
 */
const wide: Partial<AttentionSetup> = {
  numHeads: 16,
  headDim: 64,
  valueDim: 64,
  keyDType: 'f16',
  valueDType: 'f16',
  blockSize: 64,
  contextLengths: [200],
  queries: [
    [0, 199],
    [0, 120],
  ],
};

export const attentionSetups: readonly AttentionSetup[] = [
  ...lengths.map((length) =>
    setup(`decode after ${length}`, { contextLengths: [length], queries: [[0, Math.max(0, length - 1)]] }),
  ),
  ...[1, 2, 7, 8, 9, 33].map((length) =>
    setup(`prefill of ${length}`, { contextLengths: [length], queries: prefill(length) }),
  ),
  setup('no queries', { queries: [] }),
  setup('several sequences', paged),
  ...[1, 3, 16].map((blockSize) => setup(`several sequences in blocks of ${blockSize}`, { ...paged, blockSize })),
  ...[1, 2, 3, 8, 100].map((window) => setup(`window of ${window}`, { ...paged, window })),
  ...[0, 1, 2, 7, 8].map((window) => setup(`bidirectional, window of ${window}`, { ...paged, causal: false, window })),
  ...[1, 6, 100].map((window) => setup(`chunks of ${window}`, { ...paged, window, chunked: true })),
  // a block within the reach of a window of 9, but not of the chunk
  setup('decode in chunks of 9', { contextLengths: [17], queries: [[0, 16]], window: 9, chunked: true }),
  setup('prefill of 40 in chunks of 9', { contextLengths: [40], queries: prefill(40), window: 9, chunked: true }),
  setup('everything out of the window', { queries: [[0, 40]], window: 4 }),
  ...[0.5, 5, 50].map((softCap) => setup(`cap of ${softCap}`, { ...paged, softCap })),
  setup('cap and window', { ...paged, softCap: 20, window: 5, causal: false }),
  ...[
    [1, 1],
    [3, 3],
    [5, 1],
    [8, 2],
    [12, 4],
  ].map(([numHeads, numKvHeads]) =>
    setup(`${numHeads} heads on ${numKvHeads} KV heads`, { ...paged, numHeads, numKvHeads }),
  ),
  ...[
    [1, 1],
    [2, 3],
    [7, 8],
    [33, 17],
    [64, 64],
    [80, 80],
    [128, 96],
  ].map(([headDim, valueDim]) => setup(`heads of ${headDim} / ${valueDim}`, { ...paged, headDim, valueDim })),
  // adjacent tiles of many queries: a write beyond the last column of one lands in another
  ...[
    [6, 10],
    [32, 32],
    [33, 17],
    [80, 80],
    [128, 128],
  ].map(([headDim, valueDim]) =>
    setup(`prefill of 40, heads of ${headDim} / ${valueDim}`, {
      ...{ contextLengths: [40], queries: prefill(40), headDim, valueDim },
    }),
  ),
  ...cacheDTypes.flatMap((dtype) => {
    const dim = dtypeInfo(dtype).blockSize === 1 ? 24 : 64;
    const dtypes = { keyDType: dtype, valueDType: dtype, headDim: dim, valueDim: dim };
    return [
      setup(`${dtype} cache`, { ...dtypes }),
      setup(`${dtype} cache, several sequences`, { ...paged, ...dtypes }),
    ];
  }),
  ...[1, 4, 60].map((sinkSpread) => setup(`sinks of ${sinkSpread}`, { ...paged, sinkSpread })),
  setup('sinks, cap and window', { ...paged, softCap: 20, window: 5, sinkSpread: 2 }),
  setup('sinks, everything out of the window', { queries: [[0, 40]], window: 4, sinkSpread: 2 }),
  // a context that kernels split
  setup('sinks, decode after 700', { contextLengths: [700], queries: [[0, 699]], sinkSpread: 4 }),
  setup('sinks, prefill of 40', { contextLengths: [40], queries: prefill(40), numHeads: 6, sinkSpread: 4 }),
  setup('sinks, eight heads per KV head', { ...wide, sinkSpread: 4 }),
  setup('biases by position, bidirectional', { ...paged, causal: false, biasReach: 6 }),
  setup('biases by position, cap and window', { ...paged, softCap: 20, window: 9, biasReach: 3 }),
  setup('biases by position, prefill of 40', {
    ...{ contextLengths: [40], queries: prefill(40), numHeads: 3, numKvHeads: 3, causal: false, biasReach: 15 },
  }),
  setup('biases by position, decode after 700', { contextLengths: [700], queries: [[0, 699]], biasReach: 64 }),
  setup('biases by position, eight heads per KV head, sinks', { ...wide, biasReach: 100, sinkSpread: 1 }),
  setup('eight heads per KV head', wide),
  setup('eight heads per KV head, some slots empty', { ...wide, ...paged, blockSize: 16 }),
  setup('eight heads per KV head, window', { ...wide, window: 70, softCap: 20 }),
  setup('eight heads per KV head, chunks of 70', {
    ...{ ...wide, window: 70, chunked: true },
    // the last and the first query of a chunk, and one within
    queries: [139, 140, 199].map((position) => [0, position]),
  }),
  setup('eight heads per KV head, heads of 24 / 40', { ...wide, headDim: 24, valueDim: 40, blockSize: 24 }),
  setup('eight heads per KV head, heads of 20 / 12', { ...wide, headDim: 20, valueDim: 12 }),
  setup('six heads per KV head, f32 keys', { ...wide, numHeads: 12, keyDType: 'f32' }),
  setup('seven heads per KV head, bf16 values', { ...wide, numHeads: 14, valueDType: 'bf16' }),
  setup('q8_0 keys, f16 values', { ...paged, headDim: 32, valueDim: 20, keyDType: 'q8_0', valueDType: 'f16' }),
  setup('bf16 keys, q4_0 values', { ...paged, headDim: 20, valueDim: 32, keyDType: 'bf16', valueDType: 'q4_0' }),
];
