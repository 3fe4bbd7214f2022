import { ShapeError } from '@winnow/tensor';
import { softplus } from '../numerics/softplus.js';
import { f32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';
import { eachSequence, stateInputs } from '../spec/recurrent-state.js';

/**
 * The selective scan of state-space layers (Mamba and Mamba-2). Per head with state `M [P, S]` and per token, with `b` and
 * `c` of its group:
 *
 *     d = softplus(dt + dtBias)
 *     M = exp(d * decay) * M + d * x b^T
 *     y = M c + skip * x
 *
 * Shapes: x and y `[T, N, P]`; b, c `[T, G, S]`, G dividing N, head h of group `floor(h * G / N)`; dt `[T, N]`, dtBias and
 * skip `[N]`; decay `[N, A]`, negative or 0, one per head (A = 1, Mamba-2) or one per column of M (A = S, Mamba, whose heads
 * have P = 1); all f32. Without dtBias it is 0.
 * State `[R, N, P, S]` f32: the matrices M; its rows: see `recurrent-state.ts`.
 * Numerics: the reference computes a step in f64 and rounds M to f32 at its end.
 * Cost: `5 P S` operations per token and head.
 * Source: arXiv:2312.00752 section 3.2, arXiv:2405.21060 section 6 with the recurrence itself: its blocks of tokens need
 * fewer operations only where matrix products are much faster than others.
 */
export const selectiveScan: OpSpec = {
  name: 'selective-scan',
  inputs: {
    x: { dtypes: f32Only, shape: 'T N P' },
    b: { dtypes: f32Only, shape: 'T G S' },
    c: { dtypes: f32Only, shape: 'T G S' },
    dt: { dtypes: f32Only, shape: 'T N' },
    dtBias: { dtypes: f32Only, shape: 'N', optional: true },
    decay: { dtypes: f32Only, shape: 'N A' },
    skip: { dtypes: f32Only, shape: 'N' },
    ...stateInputs,
  },
  outputs: {
    state: { dtypes: f32Only, shape: 'R N P S', updates: true },
    y: { dtypes: f32Only, shape: 'T N P' },
  },
  axes: {
    T: 'numTokens',
    N: 'numHeads',
    P: 'headDim',
    G: 'numGroups',
    S: 'stateDim',
    A: 'numDecays',
    B: 'numSequences',
    R: 'numStates',
  },
  attributes: {},
  fixedAxes: ['N', 'P', 'G', 'S', 'A', 'R'],
  partition: 'heads',
  work: 'y.numElements * state.stateDim',
  check({ b, decay, state }) {
    const [numGroups, stateDim] = [Number(b[1]), Number(b[2])];
    const numHeads = Number(state[1]);
    if (numGroups < 1 || numHeads % numGroups !== 0) {
      const expected = `a divisor of ${numHeads}`;
      throw new ShapeError({ op: 'selective-scan', rule: 'groups', expected, actual: String(numGroups) });
    }
    if (Number(decay[1]) !== 1 && Number(decay[1]) !== stateDim) {
      const expected = `1 or ${stateDim}`;
      throw new ShapeError({ op: 'selective-scan', rule: 'decays per head', expected, actual: String(decay[1]) });
    }
  },
  bindReference({ inputs, outputs: { state, y } }) {
    const { x, b, c, dt, dtBias, decay, skip } = inputs;
    const [, numHeads, headDim, stateDim] = state.shape;
    const [numGroups, numDecays] = [b.shape[1], decay.shape[1]];
    const memory = new Float64Array(headDim * stateDim);
    const scan = (t: number, head: number): void => {
      const group = (t * numGroups + Math.floor((head * numGroups) / numHeads)) * stateDim;
      const step = softplus(dt.data[t * numHeads + head] + (dtBias === undefined ? 0 : dtBias.data[head]));
      for (let i = 0; i < headDim; i++) {
        const at = (t * numHeads + head) * headDim + i;
        let sum = skip.data[head] * x.data[at];
        for (let j = 0; j < stateDim; j++) {
          const kept = Math.exp(step * decay.data[head * numDecays + (numDecays === 1 ? 0 : j)]);
          const value = kept * memory[i * stateDim + j] + step * x.data[at] * b.data[group + j];
          memory[i * stateDim + j] = value;
          sum += value * c.data[group + j];
        }
        y.data[at] = sum;
      }
    };
    return () => {
      eachSequence(inputs, (begin, end, from, to) => {
        for (let head = 0; head < numHeads; head++) {
          const source = (from * numHeads + head) * memory.length;
          for (let i = 0; i < memory.length; i++) memory[i] = from < 0 ? 0 : state.data[source + i];
          for (let t = begin; t < end; t++) scan(t, head);
          const target = (to * numHeads + head) * memory.length;
          for (let i = 0; i < memory.length; i++) state.data[target + i] = memory[i];
        }
      });
    };
  },
  flops: ({ y: [numTokens, numHeads, headDim], state }) => 5 * numTokens * numHeads * headDim * state[3],
  bytes: ({ x, b, stateTo, state: [, numHeads, headDim, stateDim] }) =>
    4 * (x[0] * (2 * x[1] * x[2] + x[1] + 2 * b[1] * b[2]) + 2 * stateTo[0] * numHeads * headDim * stateDim),
};
