import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { sha256 } from './sha256.js';

describe('sha256', () => {
  test('published digests', () => {
    const of = (text: string): string => sha256([new TextEncoder().encode(text)]);
    expect(of('')).toBe('e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855');
    expect(of('abc')).toBe('ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad');
  });

  test('equals the digest of the host, in pieces of any size', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), fc.array(fc.nat(300), { maxLength: 5 }), (bytes, cuts) => {
        const ends = [...cuts.map((cut) => Math.min(cut, bytes.length)).sort((a, b) => a - b), bytes.length];
        const pieces = ends.map((end, i) => bytes.subarray(ends[i - 1] ?? 0, end));
        expect(sha256(pieces)).toBe(createHash('sha256').update(bytes).digest('hex'));
      }),
    );
  });
});
