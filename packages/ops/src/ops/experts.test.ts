/** The ops of mixtures of experts: expert-route, expert-matmul, expert-bias, expert-combine. */
import { ArgumentError, ShapeError } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { floats, ints, runOp } from '../../test/run-op.js';

const rounded = (values: readonly number[] | undefined): number[] => (values ?? []).map(Math.fround);

describe('expert-route', () => {
  const logits = floats([0, Math.log(3), Math.log(2)], 1, 3);

  it('applies a softmax over all experts; selected weights may be normalized and scaled', () => {
    const plain = runOp('expert-route', { logits }, { k: 2 });
    expect(plain['ids']).toEqual([1, 2]);
    expect(plain['weights']?.map((w) => w.toFixed(6))).toEqual(['0.500000', '0.333333']);
    const normalized = runOp('expert-route', { logits }, { k: 2, normalize: true, scale: 10 });
    expect(normalized['weights']?.map((w) => w.toFixed(5))).toEqual(['6.00000', '4.00000']);
  });

  it('selects with the bias and weights without it', () => {
    const inputs = { logits: floats([0, 0, Math.log(3)], 1, 3), bias: floats([1, 0, 0], 3) };
    const { ids, weights } = runOp('expert-route', inputs, { k: 2, score: 'sigmoid', normalize: true });
    expect(ids).toEqual([0, 2]);
    expect(weights?.map((w) => w.toFixed(6))).toEqual(['0.400000', '0.600000']);
  });

  it('prefers the lower index among equals and normalizes a zero sum to 0', () => {
    expect(runOp('expert-route', { logits: floats([1, 1, 1, 2], 1, 4) }, { k: 3 })['ids']).toEqual([3, 0, 1]);
    const hopeless = { logits: floats([-2000, -2000], 1, 2) };
    expect(runOp('expert-route', hopeless, { k: 2, score: 'sigmoid', normalize: true })['weights']).toEqual([0, 0]);
  });

  it('selects only from the best groups, ranked by their best expert or their best two', () => {
    const inputs = { logits: floats([0.9, -5, 0.6, 0.5, -5, -5], 1, 6) };
    const attributes = { k: 2, score: 'sigmoid', numGroups: 3, numChosenGroups: 1 };
    expect(runOp('expert-route', inputs, attributes)['ids']).toEqual([0, 1]);
    expect(runOp('expert-route', inputs, { ...attributes, groupScore: 'best-two' })['ids']).toEqual([2, 3]);
    expect(runOp('expert-route', inputs, { ...attributes, numChosenGroups: 2 })['ids']).toEqual([0, 2]);
    const bias = floats([0, 0, 0, 0, 2, 0], 6);
    expect(runOp('expert-route', { ...inputs, bias }, attributes)['ids']).toEqual([4, 5]);
  });

  it.each([
    { numGroups: 2, numChosenGroups: 1 },
    { numGroups: 3, numChosenGroups: 4, k: 1 },
    { numGroups: 3, numChosenGroups: 1, k: 2 },
    { numGroups: 3, numChosenGroups: 2, k: 1, groupScore: 'best-two' },
  ])('rejects impossible groups %j', (groups) => {
    expect(() => runOp('expert-route', { logits }, { k: 1, ...groups })).toThrow(ArgumentError);
  });

  it('rejects k above the number of experts', () => {
    expect(() => runOp('expert-route', { logits }, { k: 4 })).toThrow(ArgumentError);
    expect(() => runOp('expert-route', { logits }, { k: 0 })).toThrow(ArgumentError);
  });
});

describe('expert-matmul', () => {
  // expert e has the rows e, 10 e
  const weight = floats([0, 0, 1, 10, 2, 20], 3, 2, 1);
  const ids = ints([2, 0, 1, 2], 2, 2);

  it('multiplies each selected expert with its own row of x, or all of a token with one row', () => {
    const own = runOp('expert-matmul', { x: floats([1, 2, 3, 4], 2, 2, 1), ids, weight });
    expect(own['y']).toEqual([2, 20, 0, 0, 3, 30, 8, 80]);
    const shared = runOp('expert-matmul', { x: floats([1, 3], 2, 1, 1), ids, weight });
    expect(shared['y']).toEqual([2, 20, 0, 0, 3, 30, 6, 60]);
  });

  it('reads only selected experts', () => {
    const bad = floats([NaN, NaN, 1, 10, 2, 20], 3, 2, 1);
    const chosen = ints([2, 1], 1, 2);
    expect(runOp('expert-matmul', { x: floats([1], 1, 1, 1), ids: chosen, weight: bad })['y']).toEqual([2, 20, 1, 10]);
  });

  it('rejects another number of rows per token', () => {
    const three = { x: floats([1, 2, 3], 1, 3, 1), ids: ints([0, 1], 1, 2), weight };
    expect(() => runOp('expert-matmul', three)).toThrow(ShapeError);
  });
});

describe('expert-bias', () => {
  const ids = ints([2, 0], 1, 2);
  const bias = floats([10, 20, NaN, NaN, 30, 40], 3, 2);

  it('adds the bias of each selected expert, in place too', () => {
    const x = floats([1, 2, 3, 4], 1, 2, 2);
    expect(runOp('expert-bias', { x, ids, bias })['y']).toEqual([31, 42, 13, 24]);
  });

  it('rejects biases of another length', () => {
    const x = floats([1, 2, 3, 4, 5, 6], 1, 2, 3);
    expect(() => runOp('expert-bias', { x, ids, bias })).toThrow(ShapeError);
  });
});

describe('expert-combine', () => {
  it('sums the weighted outputs of experts per token', () => {
    const x = floats([1, 2, 10, 20], 1, 2, 2);
    expect(rounded(runOp('expert-combine', { x, weights: floats([0.5, 0.25], 1, 2) })['y'])).toEqual([3, 6]);
  });
});

describe('the pointwise ops around them', () => {
  it('multiply, scale, scale-rows, slice-columns', () => {
    const x = floats([1, 2, 3, 4, 5, 6], 2, 3);
    expect(runOp('multiply', { a: x, b: x })['y']).toEqual([1, 4, 9, 16, 25, 36]);
    expect(runOp('scale', { x }, { factor: -2 })['y']).toEqual([-2, -4, -6, -8, -10, -12]);
    expect(runOp('scale-rows', { x, scales: floats([2, 0.5], 2, 1) })['y']).toEqual([2, 4, 6, 2, 2.5, 3]);
    expect(runOp('slice-columns', { x }, { begin: 1, length: 2 })['y']).toEqual([2, 3, 5, 6]);
    expect(runOp('slice-columns', { x }, { begin: 1, length: 4, pads: true })['y']).toEqual([2, 3, 0, 0, 5, 6, 0, 0]);
    expect(() => runOp('slice-columns', { x }, { begin: 4, length: 2, pads: true })).toThrow(ArgumentError);
    expect(() => runOp('slice-columns', { x }, { begin: 2, length: 2 })).toThrow(ArgumentError);
    expect(() => runOp('slice-columns', { x }, { begin: -1, length: 2 })).toThrow(ArgumentError);
  });
});
