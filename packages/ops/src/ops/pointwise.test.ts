/** Pointwise ops: activation, glu, add, soft-cap. */
import { describe, expect, it } from 'vitest';
import { floats, ints, runOp } from '../../test/run-op.js';
import { activationKinds } from '../numerics/activation-functions.js';

describe('add', () => {
  it('adds and rounds once', () => {
    expect(
      runOp('add', { a: floats([1, 1, Infinity, 0], 2, 2), b: floats([2, 2 ** -30, -Infinity, -0], 2, 2) }),
    ).toEqual({
      y: [3, 1, NaN, 0],
    });
  });

  it('works in place and on empty tensors', () => {
    const a = floats([1, 2, 3], 3);
    const y = { ...a };
    runOp('add', { a, b: floats([1, 1, 1], 3) });
    expect([...y.data]).toEqual([1, 2, 3]);
    expect(runOp('add', { a: floats([], 0, 4), b: floats([], 0, 4) })).toEqual({ y: [] });
  });
});

describe('activation', () => {
  it('applies the given function', () => {
    expect(runOp('activation', { x: floats([-1, 0, 3], 3) }, { kind: 'relu2' })).toEqual({ y: [0, 0, 9] });
    const [half] = runOp('activation', { x: floats([0], 1) }, { kind: 'sigmoid' })['y'];
    expect(half).toBe(0.5);
  });

  it('leaves columns beyond the count at 0', () => {
    const inputs = { x: floats([1, 0, NaN, 4, -1, 2], 2, 3), count: ints([2], 1) };
    expect(runOp('activation', inputs, { kind: 'relu2' })).toEqual({ y: [1, 0, 0, 16, 0, 0] });
  });
});

describe('glu', () => {
  it.each(activationKinds)('%s is the activation times the other half', (kind) => {
    const gate = floats([-3, -0.5, 0, 0.25, 2, 9], 2, 3);
    const up = floats([1, -2, 4, 8, -16, 0.5], 2, 3);
    const plain = runOp('activation', { x: gate }, { kind })['y'];
    const gated = runOp('glu', { gate, up }, { kind })['y'];
    // multiplication by a power of two is exact, so both round alike
    expect(gated).toEqual(plain.map((value, i) => value * up.data[i]));
  });

  it('leaves columns beyond the count at 0', () => {
    const inputs = { gate: floats([1, NaN, 3, 4], 2, 2), up: floats([5, 6, 7, 8], 2, 2), count: ints([1], 1) };
    expect(runOp('glu', inputs, { kind: 'relu' })).toEqual({ y: [5, 0, 21, 0] });
  });
});

describe('soft-cap', () => {
  it('is odd, bounded, and close to the identity near 0', () => {
    const { y } = runOp(
      'soft-cap',
      { x: floats([-Infinity, -1000, -1e-3, 0, 1e-3, 30, 1000, Infinity, NaN], 9) },
      { cap: 30 },
    );
    expect(y).toEqual([
      -30,
      -30,
      Math.fround(-1e-3),
      0,
      Math.fround(1e-3),
      Math.fround(30 * Math.tanh(1)),
      30,
      30,
      NaN,
    ]);
  });
});

describe('the clamped glu', () => {
  const glu = (gate: number, up: number, attributes: Record<string, number> = {}): number =>
    runOp('glu', { gate: floats([gate], 1), up: floats([up], 1) }, { kind: 'silu', limit: 7, alpha: 2, ...attributes })[
      'y'
    ]?.[0] as number;

  it('limits the gate from above and up on both sides, and adds 1 to it', () => {
    const silu = (x: number): number => x / (1 + Math.exp(-x));
    expect(glu(1, 0.5)).toBeCloseTo((silu(2) / 2) * 1.5, 6);
    expect(glu(9, 0.5)).toBe(glu(7, 0.5));
    expect(glu(-9, 0.5)).not.toBe(glu(-7, 0.5));
    expect(glu(1, 20)).toBe(glu(1, 7));
    expect(glu(1, -20)).toBe(glu(1, -7));
  });

  it('rejects limits and factors that it cannot apply', () => {
    expect(() => glu(1, 1, { limit: -1 })).toThrow(/limit: expected 0 or more/);
    expect(() => glu(1, 1, { alpha: 0 })).toThrow(/alpha: expected more than 0/);
    expect(() => glu(1, 1, { limit: 0 })).toThrow(/alpha: expected 1 without a limit/);
    const inputs = { gate: floats([1], 1), up: floats([1], 1), count: ints([1], 1) };
    expect(() => runOp('glu', inputs, { kind: 'silu', limit: 7 })).toThrow(/limit: expected 0 with a count/);
  });
});
