import { ArgumentError, tensorBytes } from '@winnow/tensor';
import { attentionAxes, kvReader, kvViewInputs, type KvReader } from '../attention/kv-reader.js';
import { bindLogit, bindPositionBias } from '../attention/sparse-inputs.js';
import { attentionAttributes, checkAttention, visibility } from '../attention/visibility.js';
import { clearState, type PartialStates } from '../numerics/partial-softmax.js';
import { f32Only, i32Only } from '../spec/dtypes.js';
import type { Attributes, OpSpec, RecordDTypes, RecordShapes, TensorView } from '../spec/op-spec.js';

/**
 * Attention of this step's queries over a cache, as partial softmax states of `numParts` ranges of the context
 * (split-KV). Part `p` holds the logical slots `[p * n, (p + 1) * n)` with `n = ceil(contextLength / numParts)`.
 *
 * Learned sinks are added by `attention-finish`.
 *
 * Shapes: q `[T, N, H]` f32, positions and sequences `[T]` i32, the cache as in `KvView`; m and l `[P, T, N]`, o `[P,
 * T, N, D]` f32. Query head `n` reads KV head `floor(n * K / N)`.
 */
export const attentionPartial: OpSpec = {
  name: 'attention-partial',
  inputs: {
    q: { dtypes: f32Only, shape: 'T N H' },
    positions: { dtypes: i32Only, shape: 'T' },
    sequences: { dtypes: i32Only, shape: 'T' },
    ...kvViewInputs,
  },
  outputs: {
    m: { dtypes: f32Only, shape: 'P T N' },
    l: { dtypes: f32Only, shape: 'P T N' },
    o: { dtypes: f32Only, shape: 'P T N D' },
  },
  axes: { ...attentionAxes, P: 'numParts' },
  attributes: { ...attentionAttributes, numParts: { kind: 'number', integer: true, default: 1 } },
  attributeDims: { P: 'numParts' },
  fixedAxes: ['N', 'H', 'K', 'S', 'C', 'D', 'M'],
  partition: 'heads',
  work: '0.5 * q.numElements * blockTable.maxBlocks * keys.blockSize',
  check(shapes, attributes) {
    checkAttention('attention-partial', shapes, attributes);
    if (Number(attributes['numParts']) < 1) {
      const actual = String(attributes['numParts']);
      throw new ArgumentError({ argument: 'attention-partial: numParts', expected: 'at least 1', actual });
    }
  },
  bindReference({ inputs, outputs, attributes }) {
    const states = {
      m: outputs['m'].data as Float32Array,
      l: outputs['l'].data as Float32Array,
      o: outputs['o'].data as Float32Array,
    };
    const numParts = attributes['numParts'] as number;
    const { q, positions, sequences } = inputs;
    const cache = kvReader(inputs);
    const attend = bindAttend(q.data as Float32Array, q.shape[1], cache, attributes);
    return () => {
      const [numTokens, numHeads] = q.shape;
      for (let part = 0; part < numParts; part++) {
        for (let t = 0; t < numTokens; t++) {
          const sequence = sequences.data[t];
          const contextLength = cache.contextLength(sequence);
          const partLength = Math.ceil(contextLength / numParts);
          const begin = Math.min(contextLength, part * partLength);
          const end = Math.min(contextLength, begin + partLength);
          for (let head = 0; head < numHeads; head++) {
            const row = (part * numTokens + t) * numHeads + head;
            attend(t, head, positions.data[t], sequence, begin, end, states, row);
          }
        }
      }
    };
  },
  flops: attentionFlops,
  bytes: attentionBytes,
};

/** An upper bound: every slot of the block table is read once, with its position. */
export function attentionBytes(
  { q, values, blockTable, keys }: RecordShapes,
  _attributes: Attributes,
  dtypes: RecordDTypes = {},
): number {
  const numSlots = blockTable[0] * blockTable[1] * values[2];
  const perStep = 4 * (q[0] * q[1] * (q[2] + values[3]) + 2 * q[0] + blockTable[0] * (blockTable[1] + 1) + numSlots);
  const cacheRows = [numSlots, values[1]];
  return (
    perStep +
    tensorBytes(dtypes['keys'] ?? 'f32', [...cacheRows, keys[3]]) +
    tensorBytes(dtypes['values'] ?? 'f32', [...cacheRows, values[3]])
  );
}

/** An upper bound: every query attends to every slot of the block table. */
export function attentionFlops({ q, values, blockTable }: RecordShapes): number {
  const numSlots = blockTable[1] * values[2];
  return 2 * q[0] * q[1] * numSlots * (q[2] + values[3]);
}

/**
 * Computes the state of one query head over the logical slots `[begin, end)` of its sequence.
 * @param sink logit of a key without a value; default: none
 */
export type Attend = (
  token: number,
  head: number,
  position: number,
  sequence: number,
  begin: number,
  end: number,
  states: PartialStates,
  row: number,
  sink?: number,
) => void;

/**
 * The definition of attention that `attention` and `attention-partial` share. Sums are in f64. A logit of -Infinity
 * counts as a masked key; a logit of NaN or +Infinity makes the state NaN, in any order of keys.
 */
export function bindAttend(
  q: Float32Array,
  numHeads: number,
  cache: KvReader,
  attributes: Attributes,
  positionBias?: TensorView,
): Attend {
  const biasOf = bindPositionBias(positionBias);
  const { numKvHeads, headDim, valueDim, keys, values } = cache;
  const logitOf = bindLogit(q, cache, attributes);
  const isVisible = visibility(attributes);
  const sum = new Float64Array(valueDim);
  return (token, head, position, sequence, begin, end, states, row, sink = -Infinity) => {
    const kvHead = Math.floor((head * numKvHeads) / numHeads);
    const queryBegin = (token * numHeads + head) * headDim;
    let max = sink;
    let denominator = sink === -Infinity ? 0 : 1;
    sum.fill(0);
    for (let logicalSlot = begin; logicalSlot < end; logicalSlot++) {
      const slot = cache.physicalSlot(sequence, logicalSlot);
      const keyPosition = cache.position(slot);
      if (!isVisible(position, keyPosition)) continue;
      const logit = logitOf(queryBegin, keys.data, keys.at(slot, kvHead)) + biasOf(head, keyPosition - position);
      if (logit === -Infinity) continue;
      if (logit > max || Number.isNaN(logit)) {
        const shrink = max === -Infinity ? 0 : Math.exp(max - logit);
        denominator *= shrink;
        for (let i = 0; i < valueDim; i++) sum[i] *= shrink;
        max = logit;
      }
      const weight = Math.exp(logit - max);
      denominator += weight;
      const valueBegin = values.at(slot, kvHead);
      for (let i = 0; i < valueDim; i++) sum[i] += weight * values.data[valueBegin + i];
    }
    clearState(states, row, valueDim);
    if (max === -Infinity) return;
    states.m[row] = max;
    const rounding = Math.exp(max - states.m[row]); // the sums are relative to the maximum as stored
    states.l[row] = denominator * rounding;
    for (let i = 0; i < valueDim; i++) states.o[row * valueDim + i] = sum[i] * rounding;
  };
}
