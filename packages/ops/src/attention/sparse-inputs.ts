/** Shared by sparse attention ops: inputs, logits, and top-k selection. */
import { dotProduct } from '../numerics/dot-product.js';
import { selectTopK } from '../numerics/select-top-k.js';
import { f32Only, i32Only } from '../spec/dtypes.js';
import type { Attributes, InputSpec, TensorView } from '../spec/op-spec.js';
import { kvViewInputs, type KvReader } from './kv-reader.js';

/** Queries and cache, as in `attention`. */
export const attentionInputs: Readonly<Record<string, InputSpec>> = {
  q: { dtypes: f32Only, shape: 'T N H' },
  positions: { dtypes: i32Only, shape: 'T' },
  sequences: { dtypes: i32Only, shape: 'T' },
  ...kvViewInputs,
};

/**
 * Learned sinks: a logit per query head that takes part in the softmax like a key without a value, visible to every query. Not
 * scaled or capped; it counts as no key.
 */
export const sinkLogitsInput: InputSpec = { dtypes: f32Only, shape: 'N', optional: true };

/**
 * Biases of the logits by relative position: a query at position `p` and a key at position `k` have the row `(R - 1) / 2 + k - p`, or
 * the first or last one beyond. R is odd. Added after the scale and the cap.
 */
export const positionBiasInput: InputSpec = { dtypes: f32Only, shape: 'R N', optional: true };

/** The bias of a head at a distance, `k - p` of above. */
export function bindPositionBias(bias: TensorView | undefined): (head: number, ahead: number) => number {
  if (bias === undefined) return () => 0;
  const { data, shape } = bias;
  const [numBiases, numHeads] = shape;
  const reach = (numBiases - 1) / 2;
  return (head, ahead) => data[(reach + Math.min(reach, Math.max(-reach, ahead))) * numHeads + head];
}

/** Axes whose sizes are known when a kernel is prepared. */
export const attentionFixedAxes: readonly string[] = ['N', 'H', 'K', 'S', 'C', 'D', 'M'];

/** Scaled and capped dot product of the query at `q[queryBegin...]` with the key at `key[keyBegin...]` (default 0). */
export type Logit = (queryBegin: number, key: Float32Array, keyBegin?: number) => number;

export function bindLogit(q: Float32Array, { headDim }: KvReader, attributes: Attributes): Logit {
  const scale = attributes['scale'] as number;
  const cap = bindCap(attributes);
  return (queryBegin, key, keyBegin = 0) => cap(dotProduct(q, queryBegin, key, keyBegin, headDim) * scale);
}

export function bindCap(attributes: Attributes): (logit: number) => number {
  const softCap = attributes['softCap'] as number;
  return softCap === 0 ? (logit) => logit : (logit) => softCap * Math.tanh(logit / softCap);
}

/**
 * Marks the `count` largest of `scores[0 ... length)` in `chosen`; ties go to the lower index, NaN counts as -Infinity.
 */
export function chooseLargest(scores: Float64Array, length: number, count: number, chosen: Uint8Array): void {
  const values = scores.slice(0, length).map((score) => (Number.isNaN(score) ? -Infinity : score));
  const best = new Int32Array(Math.min(count, length));
  selectTopK(values, 0, length, best.length, best, values);
  chosen.fill(0, 0, length);
  for (const index of best) chosen[index] = 1;
}

/** Maximum number of slots of a block table: the size of scratch over a context. */
export function maxSlotsOf(blockTable: readonly number[], keys: readonly number[]): number {
  return blockTable[1] * keys[2];
}
