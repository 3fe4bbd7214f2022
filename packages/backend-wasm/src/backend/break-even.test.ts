import { expect, test } from 'vitest';
import { breakEvenRatio } from './break-even.js';

test('every dtype has a ratio, which is higher for interleaved rows', () => {
  const types = ['f32', 'f16', 'bf16', 'q8_0', 'q4_0', 'q6_K', 'q5_K', 'q4_K'] as const;
  for (const type of types) {
    expect(breakEvenRatio(type, 'interleaved')).toBeGreaterThanOrEqual(breakEvenRatio(type, 'separate'));
    expect(breakEvenRatio(type, 'separate')).toBeGreaterThan(0);
    expect(breakEvenRatio(type, 'interleaved')).toBeLessThan(1);
  }
  expect(new Set(types.map((type) => breakEvenRatio(type, 'interleaved'))).size).toBe(types.length);
  const smallest = Math.min(...types.map((type) => breakEvenRatio(type, 'separate')));
  expect(breakEvenRatio('q2_K', 'interleaved')).toBe(smallest);
});
