/** Sizes of what the scratch of attention kernels is made of, once `enterCache` has read the record. */
import * as cache from './kv-cache-view';

/** Room for scratch that begins at multiples of 16 or 64 bytes. */
export const ALIGNMENT_BYTES: u64 = 256;

/** A key and a value as f32. */
export function rowPairBytes(): u64 {
  return cache.keyStride + cache.valueStride;
}
