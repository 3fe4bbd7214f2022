import { createRng } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { checksum64 } from './checksum.js';

function checksum(bytes: Uint8Array, seed = 0): [number, number] {
  const out = new Uint32Array(2);
  checksum64(bytes, seed, out);
  return [out[0], out[1]];
}
const text = (value: string): Uint8Array => new TextEncoder().encode(value);

describe('checksum64', () => {
  // published values of XXH32 with seed 0
  it.each([
    ['', 0x02cc5d05],
    ['a', 0x550d7456],
    ['abc', 0x32d153ff],
    ['Nobody inspects the spammish repetition', 0xe2293b2f],
  ])('has XXH32 of "%s" in its low word', (value, expected) => {
    expect(checksum(text(value))[0]).toBe(expected);
  });

  it('does not depend on alignment', () => {
    const bytes = Uint8Array.from({ length: 103 }, (_, i) => i * 7);
    for (let offset = 0; offset < 8; offset++) {
      const moved = new Uint8Array(120);
      moved.set(bytes, offset);
      expect(checksum(moved.subarray(offset, offset + 103))).toEqual(checksum(bytes));
    }
  });

  it('detects every single flipped bit, in both words, at every length', () => {
    const rng = createRng(1);
    for (const length of [1, 3, 4, 15, 16, 17, 33, 64, 200]) {
      const bytes = Uint8Array.from({ length }, () => rng.nextInt(256));
      const [low, high] = checksum(bytes, 9);
      for (let bit = 0; bit < 8 * length; bit++) {
        bytes[bit >> 3] ^= 1 << (bit & 7);
        const [flippedLow, flippedHigh] = checksum(bytes, 9);
        expect(flippedLow === low || flippedHigh === high).toBe(false);
        bytes[bit >> 3] ^= 1 << (bit & 7);
      }
    }
  });

  it('depends on seed and length', () => {
    const zeros = [0, 1, 4, 16, 20, 32].map((length) => checksum(new Uint8Array(length)).join());
    expect(new Set(zeros).size).toBe(6);
    expect(checksum(text('abc'), 1)).not.toEqual(checksum(text('abc'), 2));
  });
});
