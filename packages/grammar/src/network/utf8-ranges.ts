/** Ranges of characters as sequences of byte ranges of their UTF-8 encodings. */
import type { CodePoints } from '../code-points.js';

/** First and last byte at one position. */
export type ByteRange = readonly [first: number, last: number];

/** Last code point of each UTF-8 length. */
const lengthEnds = [0x7f, 0x7ff, 0xffff, 0x10ffff];

/**
 * Sequences of byte ranges that together match the UTF-8 encodings of exactly these characters. The ranges are split
 * until the bytes at each position vary independently.
 */
export function utf8Ranges(set: CodePoints): ByteRange[][] {
  const sequences: ByteRange[][] = [];
  for (const [first, last] of set) {
    for (let begin = first; begin <= last;) {
      const length = lengthEnds.findIndex((end) => begin <= end) + 1;
      const end = splitEnd(begin, Math.min(last, lengthEnds[length - 1] as number), length);
      const low = encode(begin, length);
      const high = encode(end, length);
      sequences.push(low.map((byte, place) => [byte, high[place] as number]));
      begin = end + 1;
    }
  }
  return sequences;
}

/** The largest end such that all trailing bytes span their full range whenever a preceding byte varies. */
function splitEnd(begin: number, end: number, length: number): number {
  for (let place = length - 1; place >= 1; place--) {
    const mask = (1 << (6 * place)) - 1; // of the last `place` bytes
    if ((begin & ~mask) === (end & ~mask)) continue;
    if ((begin & mask) !== 0) return begin | mask;
    if ((end & mask) !== mask) return (end & ~mask) - 1;
  }
  return end;
}

function encode(codePoint: number, length: number): number[] {
  if (length === 1) return [codePoint];
  const bytes: number[] = [];
  for (let place = length - 1; place >= 0; place--) {
    const bits = (codePoint >> (6 * place)) & 0x3f;
    bytes.push(place === length - 1 ? ((0xf00 >> length) & 0xff) | (codePoint >> (6 * place)) : 0x80 | bits);
  }
  return bytes;
}
