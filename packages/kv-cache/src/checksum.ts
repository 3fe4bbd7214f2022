/**
 * A 64-bit checksum for pages and files: XXH32 (https://github.com/Cyan4973/xxHash/blob/v0.8.3/doc/xxhash_spec.md) in
 * the low word, and a second mix of the same four lanes in the high word. Every step is invertible in each input word,
 * so a change within one 32-bit word is always detected; any other change is missed with a probability of about 2^-64.
 * It protects against accidents only: anyone can forge it.
 */

const prime1 = 0x9e3779b1 | 0;
const prime2 = 0x85ebca77 | 0;
const prime3 = 0xc2b2ae3d | 0;
const prime4 = 0x27d4eb2f | 0;
const prime5 = 0x165667b1 | 0;

/**
 * Writes the checksum of `bytes` to `out[0]` (low word) and `out[1]`. Fastest where `bytes` starts at a multiple of 4
 * of its buffer. Assumes a little-endian machine, as all typed-array code in this repository does.
 */
export function checksum64(bytes: Uint8Array, seed: number, out: Uint32Array): void {
  if (bytes.byteOffset % 4 !== 0) {
    checksum64(bytes.slice(), seed, out);
    return;
  }
  const length = bytes.byteLength;
  const words = new Int32Array(bytes.buffer, bytes.byteOffset, length >> 2);
  const numLaneWords = words.length & ~3;
  let low: number;
  let high: number;
  if (length >= 16) {
    const lanes = new Int32Array(4);
    lanes[0] = seed + prime1 + prime2;
    lanes[1] = seed + prime2;
    lanes[2] = seed;
    lanes[3] = seed - prime1;
    for (let begin = 0; begin < numLaneWords; begin += wordsAtOnce) {
      mixLanes(words, begin, Math.min(begin + wordsAtOnce, numLaneWords), lanes);
    }
    const [a, b, c, d] = lanes;
    low = (rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18)) | 0;
    high = rotate(a, 19) ^ Math.imul(rotate(b, 5) ^ Math.imul(rotate(c, 27) ^ Math.imul(d, prime3), prime4), prime2);
  } else {
    low = (seed + prime5) | 0;
    high = Math.imul(seed, prime2) ^ prime4;
  }
  low = (low + length) | 0;
  high = (high ^ length) | 0;
  let i = numLaneWords;
  for (; i < words.length; i++) {
    low = (low + Math.imul(words[i], prime3)) | 0;
    low = Math.imul(rotate(low, 17), prime4);
    high = Math.imul(rotate(high ^ Math.imul(words[i], prime1), 15), prime3);
  }
  for (i *= 4; i < length; i++) {
    low = (low + Math.imul(bytes[i], prime5)) | 0;
    low = Math.imul(rotate(low, 11), prime1);
    high = Math.imul(rotate(high ^ Math.imul(bytes[i], prime2), 21), prime1);
  }
  out[0] = avalanche(low);
  out[1] = avalanche(high ^ prime5);
}

/**
 * Words per call of the inner function. V8 compiles a frequently called function as a whole. For a long loop in its
 * first call it compiles only the loop (on-stack replacement), and discards that code at the end of each call.
 */
const wordsAtOnce = 1024;

function mixLanes(words: Int32Array, begin: number, end: number, state: Int32Array): void {
  // prime1 and prime2 as local constants, since bundlers may turn those of a module into variables
  const first = 0x9e3779b1 | 0;
  const second = 0x85ebca77 | 0;
  let a = state[0] | 0;
  let b = state[1] | 0;
  let c = state[2] | 0;
  let d = state[3] | 0;
  for (let i = begin; i < end; i += 4) {
    a = (a + Math.imul(words[i], second)) | 0;
    a = Math.imul((a << 13) | (a >>> 19), first);
    b = (b + Math.imul(words[i + 1], second)) | 0;
    b = Math.imul((b << 13) | (b >>> 19), first);
    c = (c + Math.imul(words[i + 2], second)) | 0;
    c = Math.imul((c << 13) | (c >>> 19), first);
    d = (d + Math.imul(words[i + 3], second)) | 0;
    d = Math.imul((d << 13) | (d >>> 19), first);
  }
  state[0] = a;
  state[1] = b;
  state[2] = c;
  state[3] = d;
}

function rotate(value: number, bits: number): number {
  return (value << bits) | (value >>> (32 - bits));
}

function avalanche(value: number): number {
  let mixed = Math.imul(value ^ (value >>> 15), prime2);
  mixed = Math.imul(mixed ^ (mixed >>> 13), prime3);
  return mixed ^ (mixed >>> 16);
}
