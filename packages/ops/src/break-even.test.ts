import { expect, test } from 'vitest';
import { breakEvenRatio } from './break-even.js';

test('types have their own ratios, with rows side by side never less than apart; others that of the slowest', () => {
  const types = ['f32', 'f16', 'bf16', 'q8_0', 'q4_0', 'q6_K', 'q5_K', 'q4_K'] as const;
  for (const type of types) {
    expect(breakEvenRatio(type, true)).toBeGreaterThanOrEqual(breakEvenRatio(type, false));
    expect(breakEvenRatio(type, false)).toBeGreaterThan(0);
    expect(breakEvenRatio(type, true)).toBeLessThan(1);
  }
  expect(new Set(types.map((type) => breakEvenRatio(type, true))).size).toBe(types.length);
  expect(breakEvenRatio('q2_K', true)).toBe(Math.min(...types.map((type) => breakEvenRatio(type, false))));
});
