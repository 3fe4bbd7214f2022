import { attentionAxes, kvReader } from '../attention/kv-reader.js';
import { attentionFixedAxes, attentionInputs } from '../attention/sparse-inputs.js';
import { attentionAttributes, checkAttention, visibility } from '../attention/visibility.js';
import { f32Only, i32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';
import { eachSequence, stateInputs } from '../spec/recurrent-state.js';
import { attentionBytes, attentionFlops, bindAttend } from './attention-partial.js';
import { checkCausal, checkCounts } from './streaming-attention.js';

/**
 * Corrects the output `x` of sparse attention by that of dense attention at every `delta`-th position. Block `b` is the
 * positions `[b delta, (b + 1) delta)`. A token is an anchor if it is the first of its block that the sequence comes to in
 * this op: usually the one at `b delta`, or a later one after tokens that other ops processed. At an anchor `y` is dense
 * attention, as in `attention`; at the other tokens of the block it is `x + (y - x at the anchor)`.
 *
 * All rules are by position, so results do not depend on how a prompt is split into steps.
 *
 * State, one row per sequence as in `recurrent-state.ts`: anchor `[R, 1, 1]` i32, the position of the last anchor plus 1, 0
 * for none; difference `[R, N, D]`, y - x there. An anchor after the token does not count. A sequence whose first token
 * has position 0 starts over.
 * Shapes: as in `attention`; x and y `[T, N, D]`; pairs `[T]` i32: keys of dense attention of each query head, 0 but at
 * anchors. Causal only.
 * Cost: `1 / delta` of dense attention, and two passes over x.
 * Source: arXiv:2505.11254, equation 4, where anchors are counted from the start of a prompt.
 */
export const deltaCorrection: OpSpec = {
  name: 'delta-correction',
  inputs: {
    ...attentionInputs,
    x: { dtypes: f32Only, shape: 'T N D' },
    stateFrom: stateInputs['stateFrom'],
    stateTo: stateInputs['stateTo'],
  },
  outputs: {
    anchor: { dtypes: i32Only, shape: 'R 1 1', updates: true },
    difference: { dtypes: f32Only, shape: 'R N D', updates: true },
    y: { dtypes: f32Only, shape: 'T N D' },
    pairs: { dtypes: i32Only, shape: 'T' },
  },
  axes: { ...attentionAxes, R: 'numStates' },
  attributes: { ...attentionAttributes, delta: { kind: 'number', integer: true } },
  fixedAxes: [...attentionFixedAxes, 'R'],
  partition: 'heads',
  work: '0.05 * q.numElements * blockTable.maxBlocks * keys.blockSize',
  check(shapes, attributes) {
    checkAttention('delta-correction', shapes, attributes);
    checkCausal('delta-correction', attributes);
    checkCounts('delta-correction', attributes, { delta: 1 });
  },
  bindReference({ inputs, outputs, attributes }) {
    const { q, positions, sequences } = inputs;
    const cache = kvReader(inputs);
    const numHeads = q.shape[1];
    const { valueDim } = cache;
    const rowLength = numHeads * valueDim;
    const xs = inputs['x'].data as Float32Array;
    const ys = outputs['y'].data as Float32Array;
    const differences = outputs['difference'].data as Float32Array;
    const { anchor, pairs } = outputs;
    const delta = attributes['delta'] as number;
    const attend = bindAttend(q.data as Float32Array, numHeads, cache, attributes);
    const isVisible = visibility(attributes);
    const state = { m: new Float32Array(1), l: new Float32Array(1), o: new Float32Array(valueDim) };
    const difference = new Float64Array(rowLength);
    const attendDense = (t: number): number => {
      const sequence = sequences.data[t];
      const contextLength = cache.contextLength(sequence);
      for (let head = 0; head < numHeads; head++) {
        attend(t, head, positions.data[t], sequence, 0, contextLength, state, 0);
        const begin = t * rowLength + head * valueDim;
        const factor = state.l[0] === 0 ? 0 : 1 / state.l[0];
        for (let i = 0; i < valueDim; i++) ys[begin + i] = state.o[i] * factor;
      }
      let numKeys = 0;
      for (let j = 0; j < contextLength; j++) {
        if (isVisible(positions.data[t], cache.position(cache.physicalSlot(sequence, j)))) numKeys++;
      }
      return numKeys;
    };
    return () => {
      eachSequence(inputs, (begin, end, from, to) => {
        const isFresh = from < 0 || positions.data[begin] === 0;
        let last = isFresh ? -1 : anchor.data[from] - 1;
        if (!isFresh) difference.set(differences.subarray(from * rowLength, (from + 1) * rowLength));
        for (let t = begin; t < end; t++) {
          const position = positions.data[t];
          const isCovered = last >= 0 && last <= position && last >= position - (position % delta);
          pairs.data[t] = isCovered ? 0 : attendDense(t);
          if (!isCovered) last = position;
          for (let i = 0; i < rowLength; i++) {
            const index = t * rowLength + i;
            if (isCovered) ys[index] = xs[index] + difference[i];
            else difference[i] = Math.fround(ys[index] - xs[index]);
          }
        }
        anchor.data[to] = last + 1;
        if (last < 0) difference.fill(0);
        differences.set(difference, to * rowLength);
      });
    };
  },
  flops: (shapes, attributes) => attentionFlops(shapes) / Number(attributes['delta']),
  bytes: attentionBytes,
};
