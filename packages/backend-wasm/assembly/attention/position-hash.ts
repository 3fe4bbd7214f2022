/** Counter-based random numbers for samples of keys, as in `ops/src/numerics/position-hash.ts`. */

const STRIDE: i32 = 0x9e3779b9;

/** The finalizer of MurmurHash3. */
function mix(x: i32): i32 {
  x ^= x >>> 16;
  x *= 0x85ebca6b;
  x ^= x >>> 13;
  x *= 0xc2b2ae35;
  return x ^ (x >>> 16);
}

/** The stream of one query and KV head. */
export function sampleStream(seed: i32, queryPosition: i32, kvHead: i32): i32 {
  return mix(mix(mix(seed) + queryPosition) + kvHead);
}

/** The level of a key: `n` or more with probability 2^-n. */
export function sampleLevel(stream: i32, keyPosition: i32): i32 {
  return clz<i32>(mix(stream + keyPosition * STRIDE));
}
