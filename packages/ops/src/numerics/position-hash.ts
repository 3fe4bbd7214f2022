/**
 * Counter-based random numbers for samples of keys: 32 uniform bits for each (seed, query position, KV head, key
 * position), whatever the order, the batch or the thread in which they are computed.
 */

/** Steps between the counters of consecutive key positions: 2^32 divided by the golden ratio, made odd. */
const stride = 0x9e3779b9;

/** The finalizer of MurmurHash3, a bijection of 32-bit integers in which each input bit changes half of the output. */
function mix(x: number): number {
  x ^= x >>> 16;
  x = Math.imul(x, 0x85ebca6b);
  x ^= x >>> 13;
  x = Math.imul(x, 0xc2b2ae35);
  return x ^ (x >>> 16);
}

/** The stream of one query and KV head. */
export function sampleStream(seed: number, queryPosition: number, kvHead: number): number {
  return mix((mix((mix(seed) + queryPosition) | 0) + kvHead) | 0);
}

/**
 * The level of a key: its random bits begin with so many zeros. It is `n` or more with probability 2^-n, for n up to
 * 32.
 */
export function sampleLevel(stream: number, keyPosition: number): number {
  return Math.clz32(mix((stream + Math.imul(keyPosition, stride)) | 0));
}
