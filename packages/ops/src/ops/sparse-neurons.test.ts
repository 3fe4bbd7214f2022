/**
 * The ops of sparse FFNs: active-neurons, sparse-matmul, gather-columns, sparse-combine, sparse-feed-forward.
 */
import { ShapeError } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { floats, ints, runOp } from '../../test/run-op.js';

describe('active-neurons', () => {
  const thresholds = floats([1, 1, 0, -1], 4);

  it('lists the neurons that reach their thresholds for any token, in ascending order', () => {
    const scores = floats([1, 0.5, -1, -2, 0, 3, -1, -2], 2, 4);
    expect(runOp('active-neurons', { scores, thresholds })).toEqual({ ids: [0, 1, 0, 0], count: [2] });
  });

  it('compares magnitudes with `absolute`', () => {
    const inputs = { scores: floats([-1, 0.5, -0.1, -0.5], 1, 4), thresholds };
    expect(runOp('active-neurons', inputs)['ids']).toEqual([3, 0, 0, 0]);
    expect(runOp('active-neurons', inputs, { absolute: true })).toEqual({ ids: [0, 2, 3, 0], count: [3] });
  });

  it('lists every neuron if the active ratio exceeds the maximum', () => {
    const inputs = { scores: floats([2, 2, -1, -2], 1, 4), thresholds };
    expect(runOp('active-neurons', inputs, { maxRatio: 0.5 })).toEqual({ ids: [0, 1, 0, 0], count: [2] });
    expect(runOp('active-neurons', inputs, { maxRatio: 0.25 })).toEqual({ ids: [0, 1, 2, 3], count: [4] });
  });

  it('counts NaN as active, so that it propagates, and gives no neurons for no tokens', () => {
    const inputs = { scores: floats([0, NaN, -1, -2], 1, 4), thresholds };
    expect(runOp('active-neurons', inputs)).toEqual({ ids: [1, 0, 0, 0], count: [1] });
    expect(runOp('active-neurons', { scores: floats([], 0, 4), thresholds })['count']).toEqual([0]);
  });

  it('rejects another number of thresholds', () => {
    expect(() => runOp('active-neurons', { scores: floats([1], 1, 1), thresholds })).toThrow(ShapeError);
  });
});

describe('sparse-matmul', () => {
  // rows that must not be read are NaN
  const weight = floats([NaN, NaN, 1, 10, 2, 20, NaN, NaN], 4, 2);
  const rows = ints([2, 1, 3], 3);

  it('multiplies with the listed rows and leaves 0 after them', () => {
    const x = floats([1, 1, 0, 2], 2, 2);
    expect(runOp('sparse-matmul', { x, weight, rows, count: ints([2], 1) })['y']).toEqual([22, 11, 0, 40, 20, 0]);
    expect(runOp('sparse-matmul', { x, weight, rows, count: ints([0], 1) })['y']).toEqual([0, 0, 0, 0, 0, 0]);
  });

  it('adds the biases by neuron, not by row', () => {
    const inputs = { x: floats([1, 1], 1, 2), weight, rows, count: ints([2], 1), bias: floats([100, 200, 300], 3) };
    expect(runOp('sparse-matmul', inputs)['y']).toEqual([322, 211, 0]);
    expect(runOp('sparse-matmul', { ...inputs, ids: ints([0, 2, 1], 3) })['y']).toEqual([122, 311, 0]);
  });

  it('rejects x of another width', () => {
    const inputs = { x: floats([1], 1, 1), weight, rows, count: ints([0], 1) };
    expect(() => runOp('sparse-matmul', inputs)).toThrow(ShapeError);
  });
});

describe('gather-columns', () => {
  it('gathers columns', () => {
    const inputs = { x: floats([1, 2, 3, 4, 5, 6], 2, 3), ids: ints([2, 0, 0], 3), count: ints([2], 1) };
    expect(runOp('gather-columns', inputs)['y']).toEqual([3, 1, 0, 6, 4, 0]);
  });
});

describe('sparse-combine', () => {
  const weight = floats([NaN, NaN, 1, 10, 2, 20], 3, 2);
  const rows = ints([2, 1, 0], 3);

  it('sums the listed rows, ignoring the rest of h', () => {
    const h = floats([1, 2, NaN, -1, 0, NaN], 2, 3);
    expect(runOp('sparse-combine', { h, weight, rows, count: ints([2], 1) })['y']).toEqual([4, 40, -2, -20]);
    expect(runOp('sparse-combine', { h, weight, rows, count: ints([0], 1) })['y']).toEqual([0, 0, 0, 0]);
  });

  it('equals the dense product for all neurons', () => {
    // down(x) = sum over neurons of x_f times column f of down
    const h = floats([1, -2, 3], 1, 3);
    const down = [1, 2, 3, 4, 5, 6]; // [2, 3]
    const dense = runOp('matmul', { x: h, weight: floats(down, 2, 3) })['y'];
    const transposed = floats([1, 4, 2, 5, 3, 6], 3, 2);
    const ids = ints([0, 1, 2], 3);
    expect(runOp('sparse-combine', { h, weight: transposed, rows: ids, count: ints([3], 1) })['y']).toEqual(dense);
  });
});

describe('sparse-feed-forward', () => {
  // rows of gate, up and down of each neuron; those that must not be read are NaN
  const nothing = [NaN, NaN, NaN, NaN, NaN, NaN];
  const weight = floats([...nothing, 1, 0, 0, 2, 10, 100, -1, 0, 0, 1, 1000, 1000], 3, 3, 2);
  const rows = ints([2, 1, 0], 3);
  const count = ints([2], 1);

  it('sums the outputs of the listed neurons', () => {
    const x = floats([3, 5, -2, 1], 2, 2);
    const inputs = { x, weight, rows, count };
    // relu: for the first token neuron 1 with 3 * 10, for the second neuron 2 with 2 * 1
    expect(runOp('sparse-feed-forward', inputs, { kind: 'relu' })['y']).toEqual([300, 3000, 2000, 2000]);
    const previous = floats([1, 2, 3, 4], 2, 2);
    expect(runOp('sparse-feed-forward', { ...inputs, previous }, { kind: 'relu' })['y']).toEqual([
      301, 3002, 2003, 2004,
    ]);
    const none = { ...inputs, previous, count: ints([0], 1) };
    expect(runOp('sparse-feed-forward', none, { kind: 'relu' })['y']).toEqual([1, 2, 3, 4]);
  });

  it('equals the four ops that it fuses', () => {
    const x = floats([0.3, -0.7], 1, 2);
    const part = (index: number) =>
      floats(
        [0, 1, 2].flatMap((neuron) => [0, 1].map((i) => weight.data[6 * neuron + 2 * index + i] as number)),
        ...[3, 2],
      );
    const product = (index: number) => runOp('sparse-matmul', { x, weight: part(index), rows, count })['y'] as number[];
    const [gate, up] = [floats(product(0), 1, 3), floats(product(1), 1, 3)];
    const h = runOp('glu', { gate, up, count }, { kind: 'silu' })['y'] as number[];
    const inputs = { h: floats(h, 1, 3), weight: part(2), rows, count };
    expect(runOp('sparse-feed-forward', { x, weight, rows, count }, { kind: 'silu' })['y']).toEqual(
      runOp('sparse-combine', inputs)['y'],
    );
  });

  it('rejects neurons without a gate', () => {
    const inputs = { x: floats([1], 1, 1), weight: floats([1, 2], 1, 2, 1), rows: ints([0], 1), count: ints([1], 1) };
    expect(() => runOp('sparse-feed-forward', inputs, { kind: 'relu' })).toThrow(ShapeError);
  });
});
