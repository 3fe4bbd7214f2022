/**
 * The ops of sparse attention: the keys that they attend to, shown by values that identify their key, and errors.
 */
import { ArgumentError, ShapeError } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { floats, ints, runOp } from '../../test/run-op.js';
import type { TensorView } from '../spec/op-spec.js';

/** A sequence of `n` keys in one block; key `j` has the value of unit vector `j` of `n + numExtra`. */
function units(n: number, numExtra = 0, key: (j: number) => number = () => 0): Record<string, TensorView> {
  const dim = n + numExtra;
  const values = new Float32Array(n * dim);
  for (let j = 0; j < n; j++) values[j * dim + j] = 1;
  return {
    keys: floats(
      Array.from({ length: n }, (_, j) => key(j)),
      1,
      1,
      n,
      1,
    ),
    values: floats(values, 1, 1, n, dim),
    slotPositions: ints(
      Array.from({ length: n }, (_, j) => j),
      1,
      n,
    ),
    blockTable: ints([0], 1, 1),
    contextLengths: ints([n], 1),
  };
}

function queries(positions: readonly number[], q = 1): Record<string, TensorView> {
  const n = positions.length;
  return {
    q: floats(new Float32Array(n).fill(q), n, 1, 1),
    positions: ints(positions, n),
    sequences: ints(new Int32Array(n), n),
  };
}

/** The unit vectors with a weight in row `row` of y. */
function partsOf(y: ArrayLike<number>, dim: number, row = 0): number[] {
  return Array.from({ length: dim }, (_, j) => j).filter((j) => (y[row * dim + j] ?? 0) !== 0);
}

/** Landmark `b` of blocks of 8 has the unit vector `64 + b`. */
function landmarks(numBlocks: number, dim: number, size: number): Record<string, TensorView> {
  const values = new Float32Array(numBlocks * dim);
  for (let b = 0; b < numBlocks; b++) values[b * dim + dim - numBlocks + b] = 1;
  return {
    keyMeans: floats(new Float32Array(numBlocks), 1, numBlocks, 1, 1),
    valueMeans: floats(values, 1, numBlocks, 1, dim),
    meanCounts: ints(new Int32Array(numBlocks).fill(size), 1, numBlocks, 1),
  };
}

const seen = (i: number, attributes: Record<string, number | boolean | string> = {}): [number[], number[]] => {
  const inputs = { ...queries([i]), ...units(64, 8), ...landmarks(8, 72, 8) };
  const all = { scale: 1, local: 4, landmarks: 'compat', global0: 0, ...attributes };
  const { y, pairs } = runOp('subquadratic-attention', inputs, all);
  const parts = partsOf(y, 72);
  expect(pairs[0]).toBe(parts.length);
  return [parts.filter((j) => j < 64), parts.filter((j) => j >= 64).map((j) => j - 64)];
};

describe('subquadratic-attention', () => {
  it('attends to the keys of the specification', () => {
    expect(seen(0)).toEqual([[0], []]);
    expect(seen(6)).toEqual([[0, 2, 3, 4, 5, 6], []]);
    expect(seen(7)).toEqual([[0, 3, 4, 5, 6, 7], [0]]);
    expect(seen(40)).toEqual([
      [0, 8, 24, 32, 36, 37, 38, 39, 40],
      [0, 2, 3, 4],
    ]);
    expect(seen(63)).toEqual([
      [0, 31, 47, 55, 59, 60, 61, 62, 63],
      [3, 5, 6, 7],
    ]);
    expect(seen(40, { causal: false })).toEqual([
      [0, 8, 24, 32, 36, 37, 38, 39, 40, 41, 42, 43, 44, 48, 56],
      [1, 3, 4, 6, 7],
    ]);
    expect(seen(40, { logStride: false })).toEqual([
      [0, 36, 37, 38, 39, 40],
      [3, 4],
    ]);
    expect(seen(40, { window: 20 })).toEqual([
      [24, 32, 36, 37, 38, 39, 40],
      [3, 4],
    ]);
    expect(seen(40, { local: 16, landmarks: 'outside-window' })[1]).toEqual([0, 2]);
    expect(seen(40, { landmarks: 'off' })[1]).toEqual([]);
  });

  it('visits the pairs of the specification', () => {
    const pairsOf = (n: number, attributes: Record<string, number | boolean | string>): number => {
      const numBlocks = n / 64;
      const cache = { ...units(n), values: floats(new Float32Array(n), 1, 1, n, 1) };
      const means = landmarks(numBlocks, numBlocks, 64);
      const valueMeans = floats(new Float32Array(numBlocks), 1, numBlocks, 1, 1);
      const all = { scale: 1, local: 128, landmarks: 'compat', global0: 0, ...attributes };
      const positions = Array.from({ length: n }, (_, i) => i);
      const { pairs } = runOp('subquadratic-attention', { ...queries(positions), ...cache, ...means, valueMeans }, all);
      return pairs.reduce((sum, count) => sum + count, 0);
    };
    expect(pairsOf(512, {})).toBe(59_778);
    expect(pairsOf(512, { local: 100 })).toBe(49_059);
    expect(pairsOf(512, { logStride: false })).toBe(59_009);
    expect(pairsOf(1024, {})).toBe(129_858);
  });

  it('rejects landmarks without means, and blocks that do not divide a cache block', () => {
    const inputs = { ...queries([5]), ...units(64) };
    const attributes = { scale: 1, local: 4, landmarks: 'compat' };
    expect(() => runOp('subquadratic-attention', inputs, attributes)).toThrow(ArgumentError);
    const means = landmarks(3, 64, 8);
    expect(() => runOp('subquadratic-attention', { ...inputs, ...means }, attributes)).toThrow(ShapeError);
  });
});

it('streaming-attention attends to the window and, with another query, to the sinks', () => {
  const inputs = { ...queries([9]), ...units(10, 0, () => Math.log(2)), sinkQ: floats([2], 1, 1, 1) };
  const { y, pairs } = runOp('streaming-attention', inputs, { scale: 1, local: 3, sinks: 2 });
  expect(partsOf(y, 10)).toEqual([0, 1, 7, 8, 9]);
  expect(pairs[0]).toBe(5);
  // weights 4, 4 and 2, 2, 2
  expect(y[0]).toBeCloseTo(4 / 14, 6);
  expect(y[9]).toBeCloseTo(2 / 14, 6);
  const far = runOp('streaming-attention', inputs, { scale: 1, local: 3, sinks: 2, window: 5 });
  expect(partsOf(far['y'], 10)).toEqual([7, 8, 9]);
});

it('oracle-topk-attention selects the largest logits, ties by the lower slot', () => {
  const inputs = { ...queries([9]), ...units(10, 0, (j) => [3, 1, 4, 1, 5, 9, 2, 6, 5, 3][j] ?? 0) };
  const parts = (k: number): number[] => partsOf(runOp('oracle-topk-attention', inputs, { scale: 1, k })['y'], 10);
  expect(parts(1)).toEqual([5]);
  expect(parts(3)).toEqual([4, 5, 7]);
  expect(parts(6)).toEqual([0, 2, 4, 5, 7, 8]);
  expect(parts(99)).toHaveLength(10);
});

describe('sparq-attention', () => {
  it('blends in the mean value by the missing mass', () => {
    // weights 1, 1, 6: the last key and the newest are kept
    const inputs = { ...queries([2]), ...units(3, 0, (j) => (j === 0 ? Math.log(6) : 0)) };
    const { y, alpha } = runOp('sparq-attention', inputs, { scale: 1, rank: 1, topK: 2, local: 1 });
    expect(alpha[0]).toBeCloseTo(7 / 8, 6);
    expect(y[0]).toBeCloseTo((7 / 8) * (6 / 7) + 1 / 8 / 3, 6);
    expect(y[1]).toBeCloseTo(1 / 8 / 3, 6);
    expect(y[2]).toBeCloseTo((7 / 8) * (1 / 7) + 1 / 8 / 3, 6);
    const plain = runOp('sparq-attention', inputs, { scale: 1, rank: 1, topK: 2, local: 1, meanValue: false });
    expect(partsOf(plain['y'], 3)).toEqual([0, 2]);
    expect(runOp('sparq-attention', inputs, { scale: 1, rank: 1, topK: 3 })['alpha'][0]).toBe(1);
  });

  it('rejects a window larger than k', () => {
    const inputs = { ...queries([2]), ...units(3) };
    expect(() => runOp('sparq-attention', inputs, { scale: 1, rank: 1, topK: 2, local: 3 })).toThrow(
      /at most topK = 2/,
    );
  });
});

it('page-topk-attention visits pages by their bounds and certifies the missing mass', () => {
  // four pages of two keys with logits ln 1, ln 8, ln 2, ln 1
  const logits = [1, 1, 8, 8, 2, 2, 1, 1].map(Math.log);
  const inputs = {
    ...queries([7]),
    ...units(8, 0, (j) => logits[j] ?? 0),
    boxCounts: ints([2, 2, 2, 2], 1, 4, 1),
    keyMin: floats(
      [0, 2, 4, 6].map((j) => logits[j] ?? 0),
      1,
      4,
      1,
      1,
    ), // tight boxes
    keyMax: floats(
      [0, 2, 4, 6].map((j) => logits[j] ?? 0),
      1,
      4,
      1,
      1,
    ),
    valueNorms: floats([1, 1, 1, 1], 1, 4, 1),
  };
  const run = (attributes: Record<string, number>) => runOp('page-topk-attention', inputs, { scale: 1, ...attributes });
  const one = run({ budget: 1 });
  expect(partsOf(one['y'], 8)).toEqual([2, 3, 6, 7]);
  expect([one['pages'][0], one['pairs'][0]]).toEqual([2, 4]);
  expect(one['certificate'][0]).toBeCloseTo(6 / 24, 6); // the bound is exact here: 1 + 1 + 2 + 2 of 24
  const kept = Math.sqrt(2 * (8 / 18) ** 2 + 2 * (1 / 18) ** 2);
  expect(one['errorBound'][0]).toBeCloseTo((6 / 24) * (1 + kept), 6);
  expect(partsOf(run({ epsilon: 0.2 })['y'], 8)).toEqual([2, 3, 4, 5, 6, 7]);
  expect(partsOf(run({ epsilon: 0.3 })['y'], 8)).toEqual([2, 3, 6, 7]);
  expect(run({ budget: -1 })['certificate'][0]).toBe(0);
  expect(partsOf(run({ budget: 0, sinks: 1 })['y'], 8)).toEqual([0, 1, 6, 7]);
});

describe('verified-topk-attention', () => {
  // eight pages of 16 equal keys; the last page is near
  const inputs = {
    ...queries([127]),
    ...units(128),
    boxCounts: ints(new Int32Array(8).fill(16), 1, 8, 1),
    keyMin: floats(new Float32Array(8), 1, 8, 1, 1),
    keyMax: floats(new Float32Array(8), 1, 8, 1, 1),
  };
  const run = (attributes: Record<string, number>) =>
    runOp('verified-topk-attention', inputs, { scale: 1, quantile: 2, ...attributes });

  it('weights drawn keys by their probabilities and estimates the error', () => {
    const { y, pairs, errorEstimate } = run({ epsilon: 9, sample: 20 });
    const drawn = partsOf(y, 128);
    expect(drawn).toHaveLength(pairs[0] as number);
    expect(drawn.slice(-16)).toEqual(Array.from({ length: 16 }, (_, i) => 112 + i));
    // 112 keys with an expected sample in [20, 40) are drawn with probability 1/4: each stands for 4
    const sum = 4 * (drawn.length - 16) + 16;
    expect(y[127]).toBeCloseTo(1 / sum, 6);
    expect(y[drawn[0] as number]).toBeCloseTo(4 / sum, 6);
    const squares = 16 / sum ** 2 + ((drawn.length - 16) * 16) / sum ** 2;
    const distance = (1 - 4 / sum) ** 2 + squares - (4 / sum) ** 2; // of the value of a drawn key from y
    const variance = ((drawn.length - 16) * (3 / 4) * 16 * distance) / sum ** 2;
    expect(errorEstimate[0]).toBeCloseTo(2 * Math.sqrt(variance / squares), 5);
  });

  it('reads everything for a small epsilon, and the same sample for the same seed', () => {
    expect(run({ epsilon: 1e-6, sample: 20 })['pairs'][0]).toBe(128);
    expect(run({ epsilon: 1e-6, sample: 20 })['errorEstimate'][0]).toBe(0);
    expect(run({ epsilon: 9, sample: 20, budget: 7 })['pairs'][0]).toBe(128);
    expect(run({ epsilon: 9, sample: 20, seed: 1 })).toEqual(run({ epsilon: 9, sample: 20, seed: 1 }));
    expect(run({ epsilon: 9, sample: 20, seed: 1 })['y']).not.toEqual(run({ epsilon: 9, sample: 20 })['y']);
  });

  it('rejects errors and quantiles that are not positive', () => {
    expect(() => run({ epsilon: 0 })).toThrow(/epsilon: expected more than 0/);
    expect(() => run({ epsilon: 1, quantile: 0 })).toThrow(ArgumentError);
  });
});

describe('delta-correction', () => {
  it('is dense at anchors and shifts the tokens after them', () => {
    const inputs = {
      ...queries([0, 1, 2, 3, 4]),
      ...units(5),
      x: floats(new Float32Array(25), 5, 1, 5),
      stateFrom: ints([-1], 1),
      stateTo: ints([0], 1),
    };
    const state = { anchor: ints([0], 1, 1, 1), difference: floats(new Float32Array(5), 1, 1, 5) };
    const { y, pairs } = runOp('delta-correction', inputs, { scale: 1, delta: 2 }, state);
    const third = y.slice(10, 15);
    expect(y.slice(0, 10)).toEqual([1, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
    expect(third[2]).toBeCloseTo(1 / 3, 6);
    expect(y.slice(15, 20)).toEqual(third);
    expect(y[24]).toBeCloseTo(1 / 5, 6);
    expect(pairs).toEqual([1, 0, 3, 0, 5]);
    expect(state.anchor.data[0]).toBe(5);
    expect(state.difference.data[4]).toBeCloseTo(1 / 5, 6);
  });
});

describe('h2o-attention', () => {
  const state = (capacity: number, chunk: number): Record<string, TensorView> => ({
    memory: ints(new Int32Array(capacity), 1, 1, capacity),
    memoryScores: floats(new Float32Array(capacity), 1, 1, capacity),
    chunkScores: floats(new Float32Array(chunk), 1, 1, chunk),
    progress: ints([0, 0], 1, 1, 2),
  });
  const rows = { stateFrom: ints([-1], 1), stateTo: ints([0], 1) };

  it('keeps the last tokens of a chunk and its heavy hitters', () => {
    // key 1 gets nearly all weight of the first chunk
    const inputs = { ...queries([0, 1, 2, 3, 4, 5]), ...units(6, 0, (j) => (j === 1 ? 20 : 0)), ...rows };
    const attributes = { scale: 1, chunk: 4, local: 1, heavy: 1 };
    const updated = state(2, 4);
    const { y, pairs } = runOp('h2o-attention', inputs, attributes, updated);
    expect([...pairs]).toEqual([1, 2, 3, 4, 3, 4]);
    expect(partsOf(y, 6, 3)).toEqual([0, 1, 2, 3]);
    expect(partsOf(y, 6, 5)).toEqual([1, 3, 4, 5]);
    expect([...(updated['memory']?.data ?? [])]).toEqual([1, 3]);
    expect([...(updated['progress']?.data ?? [])]).toEqual([6, 2]);
    expect(updated['chunkScores']?.data[0]).toBeCloseTo(1.5, 6); // all of query 4, half of query 5
    // three of four queries of the chunk, then both queries of the next
    expect(updated['memoryScores']?.data[0]).toBeCloseTo(5, 5);
  });

  it('rejects a heavy-hitter list of another size', () => {
    const inputs = { ...queries([0]), ...units(6), ...rows };
    expect(() => runOp('h2o-attention', inputs, { scale: 1, chunk: 4, local: 1, heavy: 1 }, state(3, 4))).toThrow(
      /sinks \+ local \+ heavy = 2/,
    );
  });
});
