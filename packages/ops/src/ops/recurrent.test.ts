/** Ops with a recurrent state: short-conv, gated-delta, selective-scan. */
import { ArgumentError, createRng, ShapeError } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { floats, ints, runOp, zeros } from '../../test/run-op.js';
import type { TensorView } from '../spec/op-spec.js';

const one = { stateFrom: ints([0], 1), stateTo: ints([0], 1) };
const fresh = { stateFrom: ints([-1], 1), stateTo: ints([0], 1) };

describe('short-conv', () => {
  const weight = floats([1, 10, 100], 1, 3);

  it('multiplies the current token with the last tap and stores the last inputs', () => {
    const state = floats([NaN, NaN], 1, 2, 1); // not read by a new sequence
    const x = floats([1, 2, 3], 3, 1);
    const { y } = runOp('short-conv', { x, weight, sequences: ints([0, 0, 0], 3), ...fresh }, {}, { state });
    expect(y).toEqual([100, 210, 321]);
    expect([...state.data]).toEqual([2, 3]);
    const more = { x: floats([4], 1, 1), weight, sequences: ints([0], 1), ...one };
    expect(runOp('short-conv', more, {}, { state })['y']).toEqual([432]);
    expect([...state.data]).toEqual([3, 4]);
  });

  it('leaves the source row as a snapshot', () => {
    const state = floats([1, 2, 0, 0, 7, 7], 3, 2, 1);
    const inputs = { x: floats([3], 1, 1), weight, sequences: ints([0], 1) };
    runOp('short-conv', { ...inputs, stateFrom: ints([0], 1), stateTo: ints([1], 1) }, {}, { state });
    expect([...state.data]).toEqual([1, 2, 2, 3, 7, 7]);
  });

  it('keeps sequences separate', () => {
    const state = floats([1, 2, 3, 4], 2, 2, 1);
    const x = floats([5, 6, 7], 3, 1);
    const inputs = { x, weight, sequences: ints([1, 1, 0], 3), stateFrom: ints([-1, 1], 2), stateTo: ints([0, 1], 2) };
    expect(runOp('short-conv', inputs, {}, { state })['y']).toEqual([543, 654, 700]);
    expect([...state.data]).toEqual([0, 7, 5, 6]);
  });

  it('rejects a state of another length and a kernel of one tap', () => {
    const inputs = { x: floats([1], 1, 1), sequences: ints([0], 1), ...one };
    expect(() => runOp('short-conv', { ...inputs, weight }, {}, { state: zeros('f32', 1, 3, 1) })).toThrow(ShapeError);
    const tap = { ...inputs, weight: floats([1], 1, 1) };
    expect(() => runOp('short-conv', tap, {}, { state: zeros('f32', 1, 0, 1) })).toThrow(ShapeError);
  });
});

describe('selective-scan', () => {
  // softplus(dt + bias) = 2
  const dt = Math.log(Math.exp(2) - 1);
  const constants = { dtBias: floats([1], 1), decay: floats([-Math.LN2 / 2], 1, 1), skip: floats([10], 1) };
  const tokens = (b: number[], c: number[]): Record<string, TensorView> => ({
    x: floats([3, 5], 2, 1, 1),
    b: floats(b, 2, 1, b.length / 2),
    c: floats(c, 2, 1, c.length / 2),
    dt: floats([dt - 1, dt - 1], 2, 1),
    sequences: ints([0, 0], 2),
  });

  it('halves the state by a decay of one half, adds the input and reads it', () => {
    const state = floats([NaN, NaN], 1, 1, 1, 2);
    const { y } = runOp(
      'selective-scan',
      { ...tokens([1, 0, 0, 1], [1, 0, 1, 1]), ...constants, ...fresh },
      {},
      { state },
    );
    // states 6 0, then 3 10
    expect(y?.map(Math.round)).toEqual([36, 63]);
    expect([...state.data].map(Math.round)).toEqual([3, 10]);
  });

  it('reads one decay per column, and heads of the same group read the same b and c', () => {
    const inputs = {
      x: floats([1, 1], 1, 2, 1),
      b: floats([2, 2], 1, 1, 2),
      c: floats([1, 100], 1, 1, 2),
      dt: floats([dt, dt], 1, 2),
      decay: floats([0, -Math.LN2 / 2, -Math.LN2, 0], 2, 2),
      skip: floats([0, 0], 2),
      sequences: ints([0], 1),
      ...one,
    };
    const state = floats([8, 8, 8, 8], 1, 2, 1, 2);
    const { y } = runOp('selective-scan', inputs, {}, { state });
    expect([...state.data].map(Math.round)).toEqual([12, 8, 6, 12]);
    expect(y?.map(Math.round)).toEqual([812, 1206]);
  });

  it('rejects another number of decays or groups', () => {
    const inputs = { ...tokens([1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]), ...constants, ...fresh };
    const state = zeros('f32', 1, 1, 1, 3);
    const two = { ...inputs, decay: floats([0, 0], 1, 2) };
    expect(() => runOp('selective-scan', two, {}, { state })).toThrow(ShapeError);
    const groups = { ...inputs, b: zeros('f32', 2, 2, 3), c: zeros('f32', 2, 2, 3) };
    expect(() => runOp('selective-scan', groups, {}, { state })).toThrow(ShapeError);
  });
});

const deltaAttributes = { numKeyHeads: 1, eps: 0 };

describe('gated-delta: a step by hand', () => {
  it('moves the memory halfway to the value when beta is 0 and the decay is 1', () => {
    const qkv = floats([5, 2, 4, -3, 7, 4], 2, 3); // normalized q and k: 1, 1 and -1, 1
    const gates = { alpha: floats([0, 0], 2, 1), beta: floats([0, 0], 2, 1) };
    const constants = { alphaBias: floats([0], 1), decay: floats([0], 1) };
    const state = floats([99], 1, 1, 1, 1);
    const inputs = { qkv, ...gates, ...constants, sequences: ints([0, 0], 2), ...fresh };
    expect(runOp('gated-delta', inputs, deltaAttributes, { state })['y']).toEqual([2, -3]);
    expect([...state.data]).toEqual([3]);
  });

  it('decays by exp(softplus(alpha + bias) * decay)', () => {
    const qkv = floats([1, 1, 0], 1, 3);
    // softplus(0) = ln 2; a beta of -Infinity gives a step of 0
    const gates = { alpha: floats([2], 1, 1), beta: floats([-Infinity], 1, 1) };
    const constants = { alphaBias: floats([-2], 1), decay: floats([-1], 1) };
    const state = floats([8], 1, 1, 1, 1);
    const inputs = { qkv, ...gates, ...constants, sequences: ints([0], 1), ...one };
    expect(runOp('gated-delta', inputs, deltaAttributes, { state })['y']).toEqual([4]);
  });
});

describe('gated-delta: steps of several tokens', () => {
  it('gives the same result in one step and token by token', () => {
    const [numTokens, numHeads, numKeyHeads, dim] = [9, 4, 2, 6];
    const rng = createRng(5);
    const random = (...shape: number[]): TensorView =>
      floats(
        Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => rng.nextGaussian()),
        ...shape,
      );
    const numChannels = (2 * numKeyHeads + numHeads) * dim;
    const [qkv, alpha, beta] = [
      random(numTokens, numChannels),
      random(numTokens, numHeads),
      random(numTokens, numHeads),
    ];
    const constants = { alphaBias: random(numHeads), decay: floats([-1, -0.5, -0.1, -2], numHeads) };
    const part = (tensor: TensorView, begin: number, end: number): TensorView => {
      const width = tensor.shape[1];
      return floats((tensor.data as Float32Array).slice(begin * width, end * width), end - begin, width);
    };
    const runIn = (chunk: number): { y: number[]; state: number[] } => {
      const state = zeros('f32', 1, numHeads, dim, dim);
      const y: number[] = [];
      for (let begin = 0; begin < numTokens; begin += chunk) {
        const end = Math.min(numTokens, begin + chunk);
        const inputs = {
          qkv: part(qkv, begin, end),
          alpha: part(alpha, begin, end),
          beta: part(beta, begin, end),
          ...constants,
          sequences: zeros('i32', end - begin),
          ...(begin === 0 ? fresh : one),
        };
        y.push(...(runOp('gated-delta', inputs, { numKeyHeads, eps: 1e-6 }, { state })['y'] as number[]));
      }
      return { y, state: [...state.data] };
    };
    const whole = runIn(numTokens);
    // the memory is rounded to f32 after each step, and errors do not grow
    for (const chunk of [1, 4]) {
      const found = runIn(chunk);
      for (const [i, value] of whole.y.entries()) expect(Math.abs(found.y[i] - value)).toBeLessThan(1e-5);
      for (const [i, value] of whole.state.entries()) expect(Math.abs(found.state[i] - value)).toBeLessThan(1e-5);
    }
  });

  it('rejects mismatched channels and heads', () => {
    const gates = { alpha: zeros('f32', 1, 3), beta: zeros('f32', 1, 3), alphaBias: zeros('f32', 3) };
    const common = { ...gates, decay: zeros('f32', 3), sequences: ints([0], 1), ...one };
    const state = zeros('f32', 1, 3, 2, 2);
    const wrong = { qkv: zeros('f32', 1, 9), ...common };
    expect(() => runOp('gated-delta', wrong, deltaAttributes, { state })).toThrow(ShapeError);
    const right = { qkv: zeros('f32', 1, 2 * 2 * 2 + 3 * 2), ...common };
    expect(() => runOp('gated-delta', right, { ...deltaAttributes, numKeyHeads: 2 }, { state })).toThrow(ArgumentError);
  });
});
