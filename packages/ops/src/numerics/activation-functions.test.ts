import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { activationFunction, activationKinds, erfc, type ActivationKind } from './activation-functions.js';

const { functions } = JSON.parse(
  readFileSync(new URL('./__fixtures__/closed-forms.json', import.meta.url), 'utf8'),
) as {
  functions: Record<string, [number, number][]>;
};

/** `bound` is relative, plus the smallest f64 for results below the normal range. */
function expectClose(actual: number, expected: number, bound: number, name: string): void {
  expect(Math.abs(actual - expected), `${name}: ${actual} for ${expected}`).toBeLessThanOrEqual(
    Math.abs(expected) * bound + Number.MIN_VALUE,
  );
}

describe('erfc', () => {
  it('is within its documented error of 50-digit values', () => {
    for (const [x, expected] of functions['erfc']) expectClose(erfc(x), expected, 1e-13, `erfc(${x})`);
  });

  it('is continuous where its two series meet, and reaches its limits', () => {
    expectClose(erfc(1.5 - 2 ** -50), erfc(1.5), 1e-13, 'at 1.5');
    expect([erfc(Infinity), erfc(-Infinity), erfc(0), erfc(-0), erfc(NaN)]).toEqual([0, 2, 1, 1, NaN]);
    for (let x = -6; x < 28; x += 0.01) expect(erfc(x)).toBeGreaterThanOrEqual(erfc(x + 0.01));
  });
});

describe('activation functions', () => {
  it.each(['gelu-erf', 'gelu-tanh', 'silu', 'sigmoid'] as ActivationKind[])(
    '%s agrees with 50-digit values',
    (kind) => {
      const f = activationFunction(kind);
      for (const [x, expected] of functions[kind]) {
        // the tanh form cancels in `1 + tanh` below 0: an absolute error of |x| times an f64 unit
        const absolute = kind === 'gelu-tanh' ? Math.abs(x) * 2 ** -52 : 0;
        expect(Math.abs(f(x) - expected), `${kind}(${x})`).toBeLessThanOrEqual(Math.abs(expected) * 2e-13 + absolute);
      }
    },
  );

  it('relu and its square pass positive values', () => {
    const table = [-Infinity, -2, -0, 0, 3, Infinity, NaN];
    expect(table.map(activationFunction('relu'))).toEqual([0, 0, 0, 0, 3, Infinity, NaN]);
    expect(table.map(activationFunction('relu2'))).toEqual([0, 0, 0, 0, 9, Infinity, NaN]);
  });

  it.each(activationKinds)('%s keeps NaN and finite values finite', (kind) => {
    const f = activationFunction(kind);
    expect(f(NaN)).toBeNaN();
    for (const x of [-1e4, -1000, -88, -1e-40, 0, 1e-40, 88, 1000, 1e4]) expect(Number.isFinite(f(x))).toBe(true);
  });
});
