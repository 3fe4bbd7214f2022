/** attention, attention-partial, attention-merge and attention-finish, and their partial state. */
import { createRng } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { floats, ints, runOp } from '../../test/run-op.js';
import { visibility } from '../attention/visibility.js';
import { clearState, mergeState, type PartialStates } from '../numerics/partial-softmax.js';
import type { TensorView } from '../spec/op-spec.js';

/** One sequence in blocks of 2 slots out of order; logical slot j holds position j. */
function cacheOf(keys: number[][], values: number[][]): Record<string, TensorView> {
  const numBlocks = Math.ceil(keys.length / 2) + 1;
  const dim = keys[0].length;
  const valueDim = values[0].length;
  const table = Array.from({ length: numBlocks - 1 }, (_, j) => numBlocks - 1 - j); // block 0 stays unused
  const k = new Float32Array(numBlocks * 2 * dim).fill(NaN);
  const v = new Float32Array(numBlocks * 2 * valueDim).fill(NaN);
  const positions = new Int32Array(numBlocks * 2).fill(-1);
  for (const [j, key] of keys.entries()) {
    const slot = table[j >> 1] * 2 + (j % 2);
    k.set(key, slot * dim);
    v.set(values[j], slot * valueDim);
    positions[slot] = j;
  }
  return {
    keys: floats(k, numBlocks, 1, 2, dim),
    values: floats(v, numBlocks, 1, 2, valueDim),
    slotPositions: ints(positions, numBlocks, 2),
    blockTable: ints(table, 1, numBlocks - 1),
    contextLengths: ints([keys.length], 1),
  };
}

function query(values: number[], position: number): Record<string, TensorView> {
  return { q: floats(values, 1, 1, values.length), positions: ints([position], 1), sequences: ints([0], 1) };
}

const ln = Math.log;

describe('attention: masks and heads', () => {
  it('weights values by the softmax of the logits', () => {
    // logits ln 1, ln 2, ln 5 at scale 1; position 3 is in the future
    const cache = cacheOf(
      [[ln(1)], [ln(2)], [ln(5)], [99]],
      [
        [8, 0],
        [0, 8],
        [8, 8],
        [1e9, 1e9],
      ],
    );
    const { y } = runOp('attention', { ...query([1], 2), ...cache }, { scale: 1 });
    expect(y[0]).toBeCloseTo(1 + 5, 6);
    expect(y[1]).toBeCloseTo(2 + 5, 6);
  });

  it('is bidirectional, windowed or causal', () => {
    const cache = cacheOf([[0], [0], [0], [0], [0]], [[1], [10], [100], [1000], [10000]]);
    const mean = (attributes: Record<string, number | boolean>, position = 2): number =>
      runOp('attention', { ...query([1], position), ...cache }, { scale: 1, ...attributes })['y'][0];
    expect(mean({ causal: true })).toBeCloseTo(111 / 3, 5);
    expect(mean({ causal: true, window: 2 })).toBeCloseTo(110 / 2, 5);
    expect(mean({ causal: true, window: 1 })).toBe(100);
    expect(mean({ causal: false })).toBeCloseTo(11111 / 5, 3);
    expect(mean({ causal: false, window: 2 })).toBeCloseTo(1110 / 3, 4);
    expect(mean({ causal: false, window: 1 })).toBe(100);
    expect(mean({ causal: true, window: 2 }, 9)).toBe(0); // every key is outside the window
  });

  it('sees the keys of its chunk', () => {
    const cache = cacheOf([[0], [0], [0], [0], [0]], [[1], [10], [100], [1000], [10000]]);
    const mean = (position: number, window: number): number =>
      runOp('attention', { ...query([1], position), ...cache }, { scale: 1, window, chunked: true })['y'][0];
    expect([0, 1, 2, 3, 4].map((position) => mean(position, 2))).toEqual([1, 5.5, 100, 550, 10000]);
    expect(mean(4, 3)).toBeCloseTo(11000 / 2, 2);
    expect(mean(5, 5)).toBe(0); // its chunk has no keys
  });

  it('caps logits before the softmax', () => {
    const cache = cacheOf([[1000], [-1000]], [[1], [0]]);
    const { y } = runOp('attention', { ...query([1], 5), ...cache }, { scale: 1, softCap: 0.5 });
    expect(y[0]).toBeCloseTo(1 / (1 + Math.exp(-1)), 6);
  });

  it('reads the KV head of its group', () => {
    const cache = {
      keys: floats([0, 0], 1, 2, 1, 1),
      values: floats([3, 7], 1, 2, 1, 1),
      slotPositions: ints([0], 1, 1),
      blockTable: ints([0], 1, 1),
      contextLengths: ints([1], 1),
    };
    const q = floats(new Float32Array(6), 1, 6, 1);
    const { y } = runOp('attention', { q, positions: ints([0], 1), sequences: ints([0], 1), ...cache }, { scale: 1 });
    expect(y).toEqual([3, 3, 3, 7, 7, 7]);
  });
});

describe('attention: non-finite values, and partial states', () => {
  it('propagates NaN and +Infinity, and treats -Infinity as masked, in any order of keys', () => {
    const orders: [number[], number][] = [
      [[NaN], NaN],
      [[NaN, 1], NaN],
      [[1, NaN], NaN],
      [[-Infinity, NaN], NaN],
      [[NaN, -Infinity], NaN],
      [[Infinity, 1], NaN],
      [[1, Infinity], NaN],
      [[-Infinity, 1], 1],
      [[1, -Infinity], 1],
      [[-Infinity, -Infinity], 0],
    ];
    for (const [scores, expected] of orders) {
      const cache = cacheOf(
        scores.map((score) => [score]),
        scores.map(() => [1]),
      );
      const inputs = { ...query([1], 9), ...cache };
      expect(runOp('attention', inputs, { scale: 1 })['y'][0], String(scores)).toBe(expected);
      const parts = runOp('attention-partial', inputs, { scale: 1, numParts: 2 });
      const merged = runOp('attention-merge', {
        m: floats(parts['m'], 2, 1, 1),
        l: floats(parts['l'], 2, 1, 1),
        o: floats(parts['o'], 2, 1, 1, 1),
      });
      const finished = runOp('attention-finish', {
        l: floats(merged['l'], 1, 1, 1),
        o: floats(merged['o'], 1, 1, 1, 1),
      });
      expect(finished['y'][0], `parts of ${scores}`).toBe(expected);
    }
  });

  it('equals partial states that are merged and finished', () => {
    const rng = createRng(4);
    const row = (): number[] => Array.from({ length: 3 }, () => rng.nextGaussian());
    for (const length of [1, 2, 5, 9]) {
      const cache = cacheOf(Array.from({ length }, row), Array.from({ length }, row));
      const inputs = { ...query(row(), length), ...cache };
      const { y } = runOp('attention', inputs, { scale: 0.7 });
      for (const numParts of [1, 2, 4, 11]) {
        const { m, l, o } = runOp('attention-partial', inputs, { scale: 0.7, numParts });
        const state = { m: floats(m, numParts, 1, 1), l: floats(l, numParts, 1, 1), o: floats(o, numParts, 1, 1, 3) };
        const merged = runOp('attention-merge', state);
        const finish = { l: floats(merged['l'], 1, 1, 1), o: floats(merged['o'], 1, 1, 1, 3) };
        for (const [i, value] of runOp('attention-finish', finish)['y'].entries()) expect(value).toBeCloseTo(y[i], 6);
        const twice = runOp('attention-merge', { ...state, m2: state.m, l2: state.l, o2: state.o });
        expect(twice['l'][0]).toBeCloseTo(2 * merged['l'][0], 5);
      }
    }
  });
});

describe('visibility', () => {
  it('is determined by position and excludes empty slots', () => {
    const causal = visibility({ causal: true, window: 3 });
    expect([-1, 0, 7, 8, 9, 10, 11].filter((key) => causal(10, key))).toEqual([8, 9, 10]);
    const both = visibility({ causal: false, window: 5 });
    expect([7, 8, 10, 12, 13].filter((key) => both(10, key))).toEqual([8, 10, 12]);
    expect(visibility({ causal: false, window: 0 })(3, -1)).toBe(false);
  });
});

describe('partial states', () => {
  const state = (m: number, l: number, o: number): PartialStates => ({
    m: Float32Array.of(m),
    l: Float32Array.of(l),
    o: Float32Array.of(o),
  });

  it('merge to the same state in any order, and the empty state is neutral', () => {
    const parts: [number, number, number][] = [
      [1, 2, 3],
      [-4, 1, 5],
      [2, 0.5, -1],
      [-Infinity, 0, 0],
    ];
    const merge = (order: number[]): PartialStates => {
      const target = state(NaN, NaN, NaN);
      clearState(target, 0, 1);
      for (const i of order) mergeState(target, 0, state(...parts[i]), 0, 1);
      return target;
    };
    const first = merge([0, 1, 2, 3]);
    expect(first.m[0]).toBe(2);
    for (const order of [
      [3, 2, 1, 0],
      [1, 3, 0, 2],
      [2, 0, 3, 1],
    ]) {
      const other = merge(order);
      expect(other.m[0]).toBe(2);
      expect(other.l[0]).toBeCloseTo(first.l[0], 6);
      expect(other.o[0]).toBeCloseTo(first.o[0], 6);
    }
    expect(merge([3])).toEqual(state(-Infinity, 0, 0));
    expect(merge([3, 0])).toEqual(state(1, 2, 3));
  });

  it('are written to their own row only', () => {
    const target = { m: Float32Array.of(1, 2, 3), l: Float32Array.of(4, 5, 6), o: Float32Array.of(1, 2, 3, 4, 5, 6) };
    clearState(target, 1, 2);
    expect(target).toEqual({
      m: Float32Array.of(1, -Infinity, 3),
      l: Float32Array.of(4, 0, 6),
      o: Float32Array.of(1, 2, 0, 0, 5, 6),
    });
  });
});

describe('biases by relative position', () => {
  // equal keys, so that the weights of values 8, 16 and 32 are those of the biases of keys before, at and after the query
  const cache = cacheOf([[1], [1], [1]], [[8], [16], [32]]);
  const positionBias = floats([ln(1), ln(2), ln(5)], 3, 1);
  const attend = (position: number, attributes: Record<string, number | boolean> = {}): ArrayLike<number> =>
    runOp('attention', { ...query([3], position), ...cache, positionBias }, { scale: 1, causal: false, ...attributes })[
      'y'
    ];

  it('are added to the logits', () => {
    expect(attend(1)[0]).toBeCloseTo((8 + 2 * 16 + 5 * 32) / 8, 5);
  });

  it('are those of the first and the last row beyond the table', () => {
    expect(attend(0)[0]).toBeCloseTo((2 * 8 + 5 * 16 + 5 * 32) / 12, 5);
    expect(attend(2)[0]).toBeCloseTo((8 + 16 + 2 * 32) / 4, 5);
  });

  it('are not capped, and add nothing to hidden keys', () => {
    expect(attend(1, { softCap: 0.01 })[0]).toBeCloseTo((8 + 2 * 16 + 5 * 32) / 8, 5);
    expect(attend(1, { causal: true })[0]).toBeCloseTo((8 + 2 * 16) / 3, 5);
  });

  it('have a row for the own position', () => {
    const even = { ...query([3], 1), ...cache, positionBias: floats([0, 0], 2, 1) };
    expect(() => runOp('attention', even, { scale: 1 })).toThrow('position biases');
  });
});

describe('learned sinks', () => {
  // logits ln 1 and ln 2, and a sink of ln 5, which takes 5 of 8 parts and has no value
  const cache = cacheOf([[ln(1)], [ln(2)]], [[8], [16]]);
  const sinkLogits = floats([ln(5)], 1);

  it('take part in the softmax like a key without a value', () => {
    const [y] = runOp('attention', { ...query([1], 1), ...cache, sinkLogits }, { scale: 1 })['y'];
    expect(y).toBeCloseTo((8 + 2 * 16) / 8, 5);
  });

  it('are neither scaled nor capped, and visible outside of the window', () => {
    const inputs = { ...query([2], 1), ...cache, sinkLogits };
    const [y] = runOp('attention', inputs, { scale: 0.5, window: 1 })['y'];
    expect(y).toBeCloseTo((2 * 16) / 7, 5);
  });

  it('leave zeros when no key is visible', () => {
    expect(runOp('attention', { ...query([1], -1), ...cache, sinkLogits }, { scale: 1 })['y']).toEqual([0]);
  });

  it('are added to merged states', () => {
    const inputs = { m: floats([ln(2)], 1, 1, 1), l: floats([1.5], 1, 1, 1), o: floats([20], 1, 1, 1, 1), sinkLogits };
    expect(runOp('attention-finish', inputs)['y'][0]).toBeCloseTo(5, 5);
    const { l, o, m } = inputs;
    expect(() => runOp('attention-finish', { l, o, m })).toThrow(/expected both or none, got m/);
    expect(() => runOp('attention-finish', { l, o, sinkLogits })).toThrow(/expected both or none, got sinkLogits/);
  });
});
