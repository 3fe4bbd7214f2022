/**
 * Prefill of `subquadratic-attention` with enough work items that a thread processes four KV heads at a time, and the masks
 * of its panels: results within bounds of the reference backend, bit-identical for any number of threads.
 */
import {
  createReferenceBackend,
  createScalarBlock,
  ProgramBuilder,
  type Attributes,
  type Backend,
  type BufferHandle,
  type Program,
} from '@winnow/ops';
import { createRng } from '@winnow/tensor';
import { sampled } from '@winnow/test-utils';
import { afterAll, describe, expect, test } from 'vitest';
import { createWasmBackend } from '../src/index.js';

interface Prompt {
  /** Positions of the tokens of each sequence, `[begin, end)`. */
  readonly sequences: readonly (readonly [number, number])[];
  readonly numKvHeads: number;
  readonly groupSize: number;
  readonly headDim: number;
  readonly blockSize: number;
  readonly attributes: Attributes;
  /** Slots of the last sequence with non-finite keys and values in all heads. */
  readonly spoiltKeys?: readonly number[];
  readonly spoiltValues?: readonly number[];
  /** Empty slots of the last sequence. */
  readonly holes?: readonly number[];
}

interface Found {
  readonly y: Float32Array;
  readonly pairs: Int32Array;
}

const numTokensOf = ({ sequences }: Pick<Prompt, 'sequences'>): number =>
  sequences.reduce((sum, [begin, end]) => sum + end - begin, 0);

/** Sizes derived from a prompt, and its block table with blocks in reverse order. */
function layoutOf(prompt: Prompt): {
  readonly numTokens: number;
  readonly numHeads: number;
  readonly maxBlocks: number;
  readonly numBlocks: number;
  readonly table: Int32Array;
  readonly blockOf: (sequence: number, position: number) => number;
} {
  const { sequences, blockSize } = prompt;
  const maxBlocks = Math.max(...sequences.map(([, end]) => Math.ceil(end / blockSize)));
  const numBlocks = maxBlocks * sequences.length;
  const table = Int32Array.from({ length: numBlocks }, (_, block) => numBlocks - 1 - block);
  return {
    ...{ maxBlocks, numBlocks, table },
    numTokens: numTokensOf(prompt),
    numHeads: prompt.numKvHeads * prompt.groupSize,
    blockOf: (sequence, position) => table[sequence * maxBlocks + Math.floor(position / blockSize)]!,
  };
}

function contentsOf(prompt: Prompt): Record<string, Float32Array | Int32Array> {
  const { sequences, numKvHeads, headDim, blockSize } = prompt;
  const { numTokens, numHeads, numBlocks, blockOf } = layoutOf(prompt);
  const last = sequences.length - 1;
  const rng = createRng(1);
  // magnitudes of at most 1, as the bound assumes
  const random = (length: number): Float32Array => Float32Array.from({ length }, () => 2 * rng.nextFloat() - 1);
  const contents = {
    q: random(numTokens * numHeads * headDim),
    keys: random(numBlocks * numKvHeads * blockSize * headDim),
    values: random(numBlocks * numKvHeads * blockSize * headDim),
    keyMeans: random(numBlocks * numKvHeads * headDim),
    valueMeans: random(numBlocks * numKvHeads * headDim),
    meanCounts: new Int32Array(numBlocks * numKvHeads).fill(blockSize),
    slotPositions: new Int32Array(numBlocks * blockSize).fill(-1),
  };
  for (const [sequence, [, end]] of sequences.entries()) {
    for (let position = 0; position < end; position++) {
      contents.slotPositions[blockOf(sequence, position) * blockSize + (position % blockSize)] = position;
    }
  }
  const spoil = (cache: Float32Array, positions: readonly number[], infinity: number): void => {
    for (const [i, position] of positions.entries()) {
      for (let kvHead = 0; kvHead < numKvHeads; kvHead++) {
        const row = (blockOf(last, position) * numKvHeads + kvHead) * blockSize + (position % blockSize);
        cache[row * headDim + (i % headDim)] = i % 2 === 0 ? infinity : NaN;
      }
    }
  };
  spoil(contents.keys, prompt.spoiltKeys ?? [], Infinity);
  spoil(contents.values, prompt.spoiltValues ?? [], -Infinity);
  for (const hole of prompt.holes ?? []) {
    contents.slotPositions[blockOf(last, hole) * blockSize + (hole % blockSize)] = -1;
  }
  return contents;
}

function programOf(prompt: Prompt): Program {
  const { sequences, numKvHeads, headDim, blockSize, attributes } = prompt;
  const { numTokens, numHeads, maxBlocks, numBlocks } = layoutOf(prompt);
  const cacheShape = [numBlocks, numKvHeads, blockSize, headDim];
  const meansShape = [numBlocks, 1, numKvHeads, headDim];
  const b = new ProgramBuilder({});
  const inputs = {
    q: b.external('q', 'weights', 'f32', [numTokens, numHeads, headDim]),
    positions: b.scalar('positions', [numTokens]),
    sequences: b.scalar('sequences', [numTokens]),
    keys: b.external('keys', 'kv', 'f32', cacheShape),
    values: b.external('values', 'kv', 'f32', cacheShape),
    slotPositions: b.external('slotPositions', 'kv', 'i32', [numBlocks, blockSize]),
    blockTable: b.scalar('blockTable', [sequences.length, maxBlocks]),
    contextLengths: b.scalar('contextLengths', [sequences.length]),
    keyMeans: b.external('keyMeans', 'kv', 'f32', meansShape),
    valueMeans: b.external('valueMeans', 'kv', 'f32', meansShape),
    meanCounts: b.external('meanCounts', 'kv', 'i32', meansShape.slice(0, 3)),
  };
  const scale = 1 / Math.sqrt(headDim);
  const outputs = b.append('subquadratic-attention', inputs, { scale, landmarks: 'compat', ...attributes });
  b.output('y', outputs['y']!);
  b.output('pairs', outputs['pairs']!);
  return b.build();
}

async function attend(
  backend: Backend,
  prompt: Prompt,
  contents: Readonly<Record<string, Float32Array | Int32Array>>,
): Promise<Found> {
  const { sequences, headDim } = prompt;
  const { numTokens, numHeads, table } = layoutOf(prompt);
  const program = programOf(prompt);
  const buffers = new Map<string, BufferHandle>();
  for (const [name, content] of Object.entries(contents)) {
    const bytes = new Uint8Array(content.buffer);
    const buffer = backend.allocate({ sizeBytes: bytes.length, usage: name === 'q' ? 'weights' : 'kv', label: name });
    await backend.write(buffer, 0, bytes);
    buffers.set(name, buffer);
  }
  const executable = await backend.prepare(program, { buffers, onUnsupported: 'error' });
  const scalars = createScalarBlock(program.scalars, program.symbols);
  const tokens = sequences.flatMap(([begin, end], sequence) =>
    Array.from({ length: end - begin }, (_, token) => [sequence, begin + token] as const),
  );
  scalars.slot('sequences').set(tokens.map(([sequence]) => sequence));
  scalars.slot('positions').set(tokens.map(([, position]) => position));
  scalars.slot('blockTable').set(table);
  scalars.slot('contextLengths').set(sequences.map(([, end]) => end));
  await executable.run(scalars.words);
  const found = { y: new Float32Array(numTokens * numHeads * headDim), pairs: new Int32Array(numTokens) };
  await executable.read('y', found.y);
  await executable.read('pairs', found.pairs);
  await executable.dispose();
  for (const buffer of buffers.values()) backend.free(buffer);
  return found;
}

/**
 * Bound for values of at most 1, in the way of `attentionSums` of `@winnow/conformance`: the error of a logit gives that of a
 * weight, which affects the sums of weights and of values; a sum of n terms adds n roundings.
 */
function boundOf(headDim: number, numKeys: number): number {
  const unit = 2 ** -24;
  const magnitude = Math.sqrt(headDim); // of a logit
  const score = (headDim + 5) * unit * magnitude;
  const weight = score + (2 + Math.log2(numKeys + 1)) * 10 * unit + 2 * unit * 2 * magnitude;
  return 2 * (weight + (numKeys + 4) * unit) + 4 * unit;
}

/** Indices where values differ by more, or only one is finite. */
function differences(found: Found, expected: Found, { headDim }: Prompt): string[] {
  const numHeads = found.y.length / found.pairs.length / headDim;
  return Array.from(found.y.keys()).flatMap((i) => {
    const token = Math.floor(i / headDim / numHeads);
    const [x, y] = [found.y[i]!, expected.y[i]!];
    const isClose = Number.isFinite(y)
      ? Math.abs(x - y) <= boundOf(headDim, expected.pairs[token]!)
      : !Number.isFinite(x);
    return isClose ? [] : [`token ${token}, head ${Math.floor(i / headDim) % numHeads}, ${i % headDim}: ${x} for ${y}`];
  });
}

const mostThreads = 3;
const reference = createReferenceBackend();

/** Backends with one to `mostThreads` threads, for each build. */
const builds = new Map<boolean, Promise<readonly Backend[]>>();

function backendsOf(relaxedSimd: boolean): Promise<readonly Backend[]> {
  const options = { maxMemoryBytes: 2 ** 26, maxCallerMs: 0, minSharedWork: 0, relaxedSimd };
  const backends =
    builds.get(relaxedSimd) ??
    Promise.all(
      Array.from({ length: mostThreads }, (_, index) => createWasmBackend({ ...options, numThreads: 1 + index })),
    );
  builds.set(relaxedSimd, backends);
  return backends;
}

afterAll(async () => {
  for (const backends of builds.values()) for (const backend of await backends) await backend.dispose();
});

async function check(relaxedSimd: boolean, prompt: Prompt): Promise<void> {
  const backends = await backendsOf(relaxedSimd);
  const contents = contentsOf(prompt);
  const expected = await attend(reference, prompt, contents);
  const [alone, ...together] = await Promise.all(backends.map((backend) => attend(backend, prompt, contents)));
  expect(alone!.pairs).toEqual(expected.pairs);
  expect(differences(alone!, expected, prompt).slice(0, 8)).toEqual([]);
  for (const found of together) {
    expect(found.pairs).toEqual(alone!.pairs);
    expect(found.y).toEqual(alone!.y); // every bit, except those of NaN, which are not determined
  }
}

describe.each([true, false])('relaxedSimd %s, work items of four KV heads', (relaxedSimd) => {
  const prompts: readonly Omit<Prompt, 'attributes'>[] = [
    { sequences: [[0, 400]], numKvHeads: 8, groupSize: 1, headDim: 64, blockSize: 64 },
    { sequences: [[0, 520]], numKvHeads: 6, groupSize: 1, headDim: 36, blockSize: 16 },
    { sequences: [[37, 297]], numKvHeads: 6, groupSize: 2, headDim: 64, blockSize: 16 },
    {
      sequences: [
        [0, 75],
        [100, 250],
      ],
      numKvHeads: 7,
      groupSize: 2,
      headDim: 36,
      blockSize: 24,
    },
  ];

  const chosen = sampled(prompts, 2, relaxedSimd ? 0 : 1);
  test.each(chosen)(
    '$numKvHeads KV heads of $groupSize queries, head size $headDim, tokens $sequences',
    async (prompt) => {
      // as in the kernel: tiles of 64 queries, 16 for each thread
      const numTiles = Math.ceil((numTokensOf(prompt) * prompt.groupSize) / 64);
      expect(numTiles * prompt.numKvHeads).toBeGreaterThanOrEqual(16 * mostThreads);
      await check(relaxedSimd, { ...prompt, attributes: { local: 21, global0: 0, global1: 5, logCount: true } });
    },
  );
});

describe.each([true, false])('relaxedSimd %s', (relaxedSimd) => {
  const heads = { numKvHeads: 1, groupSize: 1, blockSize: 16, headDim: 8 };

  // both builds have the same loops, over vectors of four
  const headDims = sampled([4, 8, 12, 36], 2, relaxedSimd ? 0 : 1);
  test.each(headDims)('heads of %s: non-finite values affect only queries that attend to them', async (headDim) => {
    const spoilt = { spoiltKeys: [64, 131, 150], spoiltValues: [70, 135, 199] };
    for (const attributes of [
      { local: 8, global0: 0 },
      { local: 13, logStride: false },
      { local: 3, causal: false },
    ]) {
      for (const begin of sampled([0, 120, 133], 3, attributes.local % 3)) {
        await check(relaxedSimd, {
          ...heads,
          headDim,
          sequences: [
            [0, 9],
            [begin, 200],
          ],
          attributes,
          ...spoilt,
        });
      }
    }
  });

  const windows = [0, 3, 4, 5, 8, 9, 30];
  test.each(sampled(windows, 2, relaxedSimd ? 0 : 1))('a window of %s keys before the query', async (local) => {
    for (const groupSize of [1, 2, 3]) {
      await check(relaxedSimd, {
        ...heads,
        groupSize,
        sequences: [
          [3, 100],
          [0, 70],
        ],
        attributes: { local, global0: 0, global1: 9 },
      });
    }
  });

  test('an unlimited window counts its globals once', async () => {
    await check(relaxedSimd, { ...heads, sequences: [[0, 70]], attributes: { local: 2 ** 31 - 1, global0: 0 } });
  });

  test('empty slots far back in a wide window are not pairs', async () => {
    const attributes = { local: 600, logStride: false };
    await check(relaxedSimd, { ...heads, sequences: [[640, 700]], holes: [100, 150, 151], attributes });
  });
});
