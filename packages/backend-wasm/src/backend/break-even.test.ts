import { expect, test } from 'vitest';
import { breakEvenRatioOf } from './break-even.js';

const types = ['f32', 'f16', 'bf16', 'q8_0', 'q4_0', 'q6_K', 'q5_K', 'q4_K'] as const;

test.each(['wasm', 'native'] as const)(
  '%s kernels: every dtype has a ratio, higher for interleaved rows',
  (kernels) => {
    const ratioOf = breakEvenRatioOf(kernels);
    for (const type of types) {
      expect(ratioOf(type, 'interleaved')).toBeGreaterThanOrEqual(ratioOf(type, 'separate'));
      expect(ratioOf(type, 'separate')).toBeGreaterThan(0);
      expect(ratioOf(type, 'interleaved')).toBeLessThan(1);
    }
    const smallest = Math.min(...types.map((type) => ratioOf(type, 'separate')));
    expect(ratioOf('q2_K', 'interleaved')).toBe(smallest);
  },
);

test('each kind of kernels has separate ratios', () => {
  const [wasm, native] = [breakEvenRatioOf('wasm'), breakEvenRatioOf('native')];
  for (const type of types) expect(native(type, 'interleaved')).not.toBe(wasm(type, 'interleaved'));
});
