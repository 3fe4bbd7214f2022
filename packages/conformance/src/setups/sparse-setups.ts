/** Attention problems for sparse policies: logical slots hold their own positions unless noted otherwise. */
import { cacheDTypes } from '@winnow/ops';
import { dtypeInfo } from '@winnow/tensor';
import type { AttentionSetup } from './attention-setup.js';

const base: Omit<AttentionSetup, 'name'> = {
  numHeads: 4,
  numKvHeads: 2,
  headDim: 16,
  valueDim: 16,
  blockSize: 8,
  keyDType: 'f32',
  valueDType: 'f32',
  contextLengths: [45],
  queries: [[0, 44]],
  isShuffled: false,
  causal: true,
  window: 0,
  softCap: 0,
};

export function sparseSetup(name: string, changes: Partial<AttentionSetup> = {}): AttentionSetup {
  return { ...base, ...changes, name };
}

/** Queries at every position from `begin`. */
export function chunkOf(length: number, begin = 0, sequence = 0): [number, number][] {
  return Array.from({ length: length - begin }, (_, i) => [sequence, begin + i]);
}

/** Three sequences, one of them empty: a prefill chunk, single queries. */
export const severalSequences: Partial<AttentionSetup> = {
  contextLengths: [21, 0, 40],
  queries: [...chunkOf(21, 17), [1, 5], [2, 39]],
};

/** Problems for masses: some of `sparseSetups`, and more query heads per KV head than a kernel processes at once. */
export const massSetups: readonly AttentionSetup[] = [
  sparseSetup('nothing in the cache', { contextLengths: [0], queries: [[0, 0]] }),
  sparseSetup('no queries', { queries: [] }),
  sparseSetup('any order', { ...severalSequences, isShuffled: true }),
  sparseSetup('any order, model window of 15', { ...severalSequences, isShuffled: true, window: 15 }),
  sparseSetup('cap of 5', { ...severalSequences, softCap: 5 }),
  sparseSetup('9 heads on 3 KV heads', { ...severalSequences, numHeads: 9, numKvHeads: 3 }),
  sparseSetup('20 heads on 2 KV heads', { ...severalSequences, numHeads: 20, numKvHeads: 2 }),
  sparseSetup('70 heads on 1 KV head', { ...severalSequences, numHeads: 70, numKvHeads: 1 }),
  sparseSetup('heads of 7 / 9', { ...severalSequences, headDim: 7, valueDim: 9 }),
  sparseSetup('f16 cache', { ...severalSequences, keyDType: 'f16', valueDType: 'f16' }),
  sparseSetup('q8_0 cache', {
    ...severalSequences,
    ...{ keyDType: 'q8_0', valueDType: 'q8_0', headDim: 64, valueDim: 64 },
  }),
];

/** Problems with learned sinks, which are below, among and far above the logits. */
export const sinkSetups: readonly AttentionSetup[] = [
  ...[1, 4, 60].map((sinkSpread) =>
    sparseSetup(`sinks of ${sinkSpread}`, { ...severalSequences, isShuffled: true, sinkSpread }),
  ),
  sparseSetup('sinks, nothing in the cache', { contextLengths: [0], queries: [[0, 0]], sinkSpread: 1 }),
  sparseSetup('sinks, cap of 5, model window of 15', { ...severalSequences, softCap: 5, window: 15, sinkSpread: 3 }),
  sparseSetup('sinks, 70 heads on 1 KV head', { ...severalSequences, numHeads: 70, numKvHeads: 1, sinkSpread: 4 }),
  sparseSetup('sinks, prefill', {
    contextLengths: [150],
    queries: chunkOf(150, 90),
    numHeads: 5,
    numKvHeads: 1,
    sinkSpread: 4,
  }),
];

/** Problems for every policy. */
export const sparseSetups: readonly AttentionSetup[] = [
  ...[1, 2, 7, 8, 9, 33, 130].map((length) =>
    sparseSetup(`decode after ${length}`, { contextLengths: [length], queries: [[0, length - 1]] }),
  ),
  sparseSetup('nothing in the cache', { contextLengths: [0], queries: [[0, 0]] }),
  sparseSetup('no queries', { queries: [] }),
  sparseSetup('drafts', { queries: chunkOf(45, 41) }),
  sparseSetup('several sequences', severalSequences),
  ...[1, 4, 12, 16].map((blockSize) => sparseSetup(`blocks of ${blockSize}`, { ...severalSequences, blockSize })),
  ...[1, 3, 20].map((window) => sparseSetup(`model window of ${window}`, { ...severalSequences, window })),
  sparseSetup('cap of 5', { ...severalSequences, softCap: 5 }),
  ...[
    [1, 1],
    [3, 3],
    [5, 1],
    [9, 3],
    [20, 2],
  ].map(([numHeads, numKvHeads]) =>
    sparseSetup(`${numHeads} heads on ${numKvHeads} KV heads`, { ...severalSequences, numHeads, numKvHeads }),
  ),
  ...[
    [1, 1],
    [7, 9],
    [64, 64],
    [80, 96],
  ].map(([headDim, valueDim]) =>
    sparseSetup(`heads of ${headDim} / ${valueDim}`, { ...severalSequences, headDim, valueDim }),
  ),
  // adjacent tiles of many queries: a write beyond the last column of one lands in another
  ...[
    [6, 10],
    [32, 32],
    [128, 128],
  ].map(([headDim, valueDim]) =>
    sparseSetup(`chunk of 40, heads of ${headDim} / ${valueDim}`, { queries: chunkOf(45, 5), headDim, valueDim }),
  ),
  ...cacheDTypes.map((dtype) => {
    const dim = dtypeInfo(dtype).blockSize === 1 ? 24 : 64;
    const dtypes = { keyDType: dtype, valueDType: dtype, headDim: dim, valueDim: dim };
    return sparseSetup(`${dtype} cache`, { ...severalSequences, ...dtypes });
  }),
  sparseSetup('q8_0 keys, f16 values', {
    ...severalSequences,
    headDim: 32,
    valueDim: 20,
    keyDType: 'q8_0',
    valueDType: 'f16',
  }),
];
