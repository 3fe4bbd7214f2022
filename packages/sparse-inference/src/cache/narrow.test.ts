import { createRng, encode, sizeOf } from '@winnow/tensor';
import { expect, it } from 'vitest';
import { createNarrower } from './narrow.js';

it.each(['f16', 'bf16', 'f32'] as const)(
  '%s: packs as the encoder does, also ties, small and large values',
  (dtype) => {
    const rng = createRng(3);
    const count = 20_000;
    const narrower = createNarrower(dtype, count);
    const { values } = narrower;
    for (let i = 0; i < count; i++) {
      const exponent = rng.nextInt(60) - 35;
      // few bits: many values lie halfway between two of the narrow format
      const fraction = rng.nextInt(2) === 0 ? rng.nextInt(1 << 13) / (1 << 12) : rng.nextFloat() * 2;
      values[i] = (rng.nextInt(2) === 0 ? -1 : 1) * fraction * 2 ** exponent;
    }
    values.set([0, -0, 65504, 65519.9, 65520, -1e9, 2 ** -14, 2 ** -24, 2 ** -25, 3 * 2 ** -25, 2 ** -26]);
    const expected = new Uint8Array(sizeOf(dtype, count));
    encode(dtype, values, expected);
    const actual = new Uint8Array(expected.length + 3);
    narrower.pack(count, actual, 3);
    expect(Buffer.compare(actual.subarray(3), expected)).toBe(0);
  },
);
