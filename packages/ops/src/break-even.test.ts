import { expect, test } from 'vitest';
import { breakEvenRatio } from './break-even.js';

test('measured types have their own ratio; others that of fewer bits', () => {
  const [q4, q8, f16, f32] = [4.5, 8.5, 16, 32].map(breakEvenRatio);
  expect(new Set([q4, q8, f16, f32]).size).toBe(4);
  expect(breakEvenRatio(6.5625)).toBe(q4); // q6_K
  expect(breakEvenRatio(2)).toBe(q4);
  expect(breakEvenRatio(15)).toBe(q8);
  expect(breakEvenRatio(17)).toBe(f16);
});
