/** The mean of a sequence's values per KV head, kept up to date. SparQ (arXiv:2312.04985 §4) gives it to what it skips. */
import type { KvStorage } from './kv-storage.js';

export interface ValueMean {
  /** Values in the mean. */
  readonly count: number;
  /** The value in a physical slot belongs to the sequence now. */
  add(slot: number): void;
  /** It does not any more; the slot still holds it. */
  remove(slot: number): void;
  /** Mean of `[D]` values, zeros for an empty sequence. */
  read(kvHead: number, out: Float32Array): void;
  fork(): ValueMean;
}

export function createValueMean(storage: KvStorage): ValueMean {
  return overSums(storage, new Float64Array(storage.numKvHeads * storage.valueDim), 0);
}

/** Sums in f64: taking away what was added leaves an error of a few units of 2^-53 of the largest sum on the way. */
function overSums(storage: KvStorage, sums: Float64Array, initialCount: number): ValueMean {
  const { numKvHeads, valueDim } = storage;
  const value = new Float32Array(valueDim);
  let count = initialCount;
  const include = (slot: number, sign: 1 | -1): void => {
    count += sign;
    for (let head = 0; head < numKvHeads; head++) {
      storage.readValue(slot, head, value, 0);
      for (let i = 0; i < valueDim; i++) sums[head * valueDim + i] += sign * value[i];
    }
    if (count === 0) sums.fill(0);
  };
  return {
    get count() {
      return count;
    },
    add: (slot) => include(slot, 1),
    remove: (slot) => include(slot, -1),
    read(kvHead, out) {
      for (let i = 0; i < valueDim; i++) out[i] = count === 0 ? 0 : sums[kvHead * valueDim + i] / count;
    },
    fork: () => overSums(storage, sums.slice(), count),
  };
}
