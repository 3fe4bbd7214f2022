import { ShapeError } from '@winnow/tensor';
import { activationFunction } from '../numerics/activation-functions.js';
import { f32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';
import { eachSequence, stateInputs } from '../spec/recurrent-state.js';

const silu = activationFunction('silu');

/** The activation after the convolution, in the order of the encoded values. */
export const convActivations: readonly string[] = ['none', 'silu'];

/**
 * Causal depthwise convolution with a short kernel:
 * `y[t, c] = act(bias[c] + sum_{i < K} weight[c, i] * x[t - K + 1 + i, c])`.
 * The last tap meets the current token; tokens before the step come from the state, zeros from before the sequence.
 *
 * Shapes: x and y `[T, C]`, weight `[C, K]`, K at least 2, bias `[C]` (without it 0), all f32; state `[R, J, C]` f32 holds
 * the last J = K - 1 rows of x, the oldest first. State rows: see `recurrent-state.ts`.
 * Numerics: sums in f64.
 */
export const shortConv: OpSpec = {
  name: 'short-conv',
  inputs: {
    x: { dtypes: f32Only, shape: 'T C' },
    weight: { dtypes: f32Only, shape: 'C K' },
    bias: { dtypes: f32Only, shape: 'C', optional: true },
    ...stateInputs,
  },
  outputs: { y: { dtypes: f32Only, shape: 'T C' }, state: { dtypes: f32Only, shape: 'R J C', updates: true } },
  axes: { T: 'numTokens', C: 'numChannels', K: 'numTaps', B: 'numSequences', R: 'numStates', J: 'historyLength' },
  attributes: { activation: { kind: 'string', values: convActivations, default: 'none' } },
  fixedAxes: ['C', 'K', 'R', 'J'],
  partition: 'rows',
  work: 'x.numElements * weight.numTaps',
  check({ weight, state }) {
    if (Number(weight[1]) < 2 || Number(state[1]) !== Number(weight[1]) - 1) {
      throw new ShapeError({
        op: 'short-conv',
        rule: 'taps, and rows of the state',
        expected: 'at least 2, and one less',
        actual: `${String(weight[1])}, and ${String(state[1])}`,
      });
    }
  },
  bindReference({ inputs, outputs: { y, state }, attributes }) {
    const { x, weight, bias } = inputs;
    const hasSilu = attributes['activation'] === 'silu';
    const [numChannels, numTaps] = weight.shape;
    const numKept = numTaps - 1;
    const stateLength = numKept * numChannels;
    const kept = new Float32Array(stateLength); // before the step
    return () => {
      eachSequence(inputs, (begin, end, from, to) => {
        for (let i = 0; i < stateLength; i++) kept[i] = from < 0 ? 0 : state.data[from * stateLength + i];
        const input = (t: number, channel: number): number =>
          t < begin ? kept[(t - begin + numKept) * numChannels + channel] : x.data[t * numChannels + channel];
        for (let t = begin; t < end; t++) {
          for (let channel = 0; channel < numChannels; channel++) {
            let sum = bias === undefined ? 0 : bias.data[channel];
            for (let tap = 0; tap < numTaps; tap++) {
              sum += weight.data[channel * numTaps + tap] * input(t - numKept + tap, channel);
            }
            y.data[t * numChannels + channel] = hasSilu ? silu(sum) : sum;
          }
        }
        for (let i = 0; i < numKept; i++) {
          for (let channel = 0; channel < numChannels; channel++) {
            state.data[to * stateLength + i * numChannels + channel] = input(end - numKept + i, channel);
          }
        }
      });
    };
  },
  flops: ({ x, weight }) => 2 * x[0] * x[1] * weight[1],
  bytes: ({ x, weight, stateTo }) =>
    4 * (2 * x[0] * x[1] + weight[0] * weight[1] + 2 * stateTo[0] * weight[0] * (weight[1] - 1)),
};
