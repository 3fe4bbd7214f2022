import type { DType } from '@winnow/tensor';
import type { OpSpec } from '../spec/op-spec.js';
import { eachSequence, stateInputs } from '../spec/recurrent-state.js';

const stateDTypes: readonly DType[] = ['f32', 'i32'];

/**
 * Carries a state over unchanged, for steps that do not update it: row `stateTo[b]` becomes row `stateFrom[b]`, or
 * zeros if that is negative, for every sequence with tokens in the step.
 * Shapes: state `[R, K, E]`; its rows: see `recurrent-state.ts`.
 */
export const stateCarry: OpSpec = {
  name: 'state-carry',
  inputs: stateInputs,
  outputs: { state: { dtypes: stateDTypes, shape: 'R K E', updates: true } },
  axes: { T: 'numTokens', B: 'numSequences', R: 'numStates', K: 'numHeads', E: 'stateSize' },
  attributes: {},
  fixedAxes: ['R', 'K', 'E'],
  partition: 'serial',
  bindReference({ inputs, outputs: { state } }) {
    const length = state.shape[1] * state.shape[2];
    return () => {
      eachSequence(inputs, (_begin, _end, from, to) => {
        if (from < 0) state.data.fill(0, to * length, (to + 1) * length);
        else if (from !== to) state.data.copyWithin(to * length, from * length, (from + 1) * length);
      });
    };
  },
  flops: () => 0,
  bytes: ({ stateTo, state }) => 8 * stateTo[0] * state[1] * state[2],
};
