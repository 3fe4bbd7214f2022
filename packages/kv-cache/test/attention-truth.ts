/** Attention over all keys of a cache at once in f64, with the error bound of a backend. */
import type { KvCache } from '../src/index.js';
import type { TestBackend } from './backends.js';

const unit = 2 ** -24;

export interface AttentionTruth {
  readonly out: Float64Array; // [N, D]
  /** Bound for the error of each output value. */
  readonly bounds: Float64Array;
  /** Sum over heads of the probability of each logical slot. */
  readonly masses: Float64Array;
}

interface SeenKey {
  readonly slot: number;
  readonly logit: number;
  /** `scale * sum |q_i k_i|`: the magnitude that errors of an f32 logit are relative to. */
  readonly size: number;
  readonly value: Float32Array;
}

async function seenKeys(cache: KvCache, q: Float32Array, kvHead: number, maxPosition: number): Promise<SeenKey[]> {
  const scale = 1 / Math.sqrt(q.length);
  const seen: SeenKey[] = [];
  for (let slot = 0; slot < cache.numSlots; slot++) {
    if (cache.position(slot) < 0 || cache.position(slot) > maxPosition) continue;
    const key = await cache.readKey(slot, kvHead);
    let [logit, size] = [0, 0];
    for (let i = 0; i < q.length; i++) {
      logit += q[i]! * key[i]! * scale;
      size += Math.abs(q[i]! * key[i]!) * scale;
    }
    seen.push({ slot, logit, size, value: await cache.readValue(slot, kvHead) });
  }
  return seen;
}

/**
 * Error of an f32 kernel for one head, relative to the largest value: logits are off by `headDim + 2` roundings, a weight by
 * its logit and the error of `exp` (8 units) once per rescaling of a running sum, sums of n weights by n roundings. The
 * quotient has the errors of both sums.
 */
function float32Error(seen: readonly SeenKey[], max: number, headDim: number): number {
  const numRescalings = 2 + Math.log2(seen.length + 1);
  let [sum, error] = [0, 0];
  for (const { logit, size } of seen) {
    const weight = Math.exp(logit - max);
    sum += weight;
    error += weight * ((headDim + 2) * unit * size + numRescalings * 10 * unit + 2 * unit * (max - logit));
  }
  return 2 * (error / sum + (seen.length + 4) * unit) + 3 * unit;
}

/** `m` is exact in f64 sums; `l`, each `o`, their quotient and the factor are rounded to f32: 4 roundings of the output. */
const float64Error = 4 * unit;

export async function attentionTruth(
  cache: KvCache,
  q: Float32Array,
  maxPosition: number,
  { name }: Pick<TestBackend, 'name'>,
): Promise<AttentionTruth> {
  const { numKvHeads, headDim, valueDim } = cache.pool.storage.shape;
  const numHeads = q.length / headDim;
  const out = new Float64Array(numHeads * valueDim);
  const bounds = new Float64Array(numHeads * valueDim);
  const masses = new Float64Array(cache.numSlots);
  for (let head = 0; head < numHeads; head++) {
    const query = q.subarray(head * headDim, (head + 1) * headDim);
    const seen = await seenKeys(cache, query, Math.floor((head * numKvHeads) / numHeads), maxPosition);
    const max = Math.max(...seen.map(({ logit }) => logit));
    const total = seen.reduce((sum, { logit }) => sum + Math.exp(logit - max), 0);
    let largest = 0;
    for (const { slot, logit, value } of seen) {
      const weight = Math.exp(logit - max) / total;
      masses[slot]! += weight;
      value.forEach((each, i) => (out[head * valueDim + i]! += weight * each));
      largest = Math.max(largest, ...value.map(Math.abs));
    }
    const error = name === 'reference' ? float64Error : float32Error(seen, max, headDim);
    bounds.fill(error * largest, head * valueDim, (head + 1) * valueDim);
  }
  return { out, bounds, masses };
}
