import { activationTruth } from '../activation-truth.js';
import type { KernelCase } from '../kernel-case.js';
import {
  numStateRows,
  numTokensOf,
  stateSetups,
  stateTensors,
  tokenRanges,
  type StateSetup,
} from '../setups/state-setups.js';
import { close, exact, gaussian, numbersOf } from '../values.js';

/** K products and K sums, and one with a bias, in any order; silu has a slope of at most 1.1. The state is copied, every bit. */
function convCase(
  setup: StateSetup,
  numChannels: number,
  numTaps: number,
  activation: 'none' | 'silu',
  hasBias = false,
): KernelCase {
  return {
    op: 'short-conv',
    name: `${setup.name}, ${numChannels} channels, ${numTaps} taps, ${activation}${hasBias ? ', bias' : ''}`,
    dtypes: {},
    attributes: { activation },
    create(rng, arithmetic) {
      const { unit, tiny } = arithmetic;
      const numTokens = numTokensOf(setup);
      const x = gaussian(rng, [numTokens, numChannels], 2, 0);
      const weight = gaussian(rng, [numChannels, numTaps]);
      const state = gaussian(rng, [numStateRows, numTaps - 1, numChannels]);
      const bias = hasBias ? gaussian(rng, [numChannels]) : undefined;
      const biases = bias && numbersOf(bias);
      const [xs, ws, before] = [numbersOf(x), numbersOf(weight), numbersOf(state)];
      const after = before.slice();
      const values = new Float64Array(numTokens * numChannels);
      const bounds = new Float64Array(values.length);
      const rowLength = (numTaps - 1) * numChannels;
      for (const { begin, end, from, to } of tokenRanges(setup)) {
        for (let channel = 0; channel < numChannels; channel++) {
          // the whole history of the channel: what the state holds, then the step
          const history = Array.from({ length: numTaps - 1 }, (_, i) =>
            from < 0 ? 0 : before[from * rowLength + i * numChannels + channel],
          );
          for (let t = begin; t < end; t++) {
            history.push(xs[t * numChannels + channel]);
            let sum = biases?.[channel] ?? 0;
            let magnitude = Math.abs(sum);
            for (let back = 0; back < numTaps; back++) {
              const term = history[history.length - 1 - back] * ws[channel * numTaps + numTaps - 1 - back];
              sum += term;
              magnitude += Math.abs(term);
            }
            const bound = (numTaps + 2) * (unit * magnitude + tiny);
            const index = t * numChannels + channel;
            const [value, own] = activation === 'silu' ? activationTruth('silu', sum, arithmetic) : [sum, 0];
            values[index] = value;
            bounds[index] = own + 1.1 * bound;
          }
          for (let i = 0; i < numTaps - 1; i++) {
            after[to * rowLength + i * numChannels + channel] = history[history.length - numTaps + 1 + i];
          }
        }
      }
      return {
        inputs: { x, weight, ...(bias === undefined ? {} : { bias }), ...stateTensors(setup) },
        updated: { state },
        expected: { y: close(values.length, (i) => [values[i], bounds[i]]), state: exact(after) },
      };
    },
  };
}

export const shortConvCases: readonly KernelCase[] = stateSetups.flatMap((setup) =>
  [1, 3, 4, 16, 33, 67, 130].flatMap((numChannels) =>
    [2, 3, 4].flatMap((numTaps) => {
      const activation = numTaps === 3 ? 'none' : 'silu';
      return [false, true].map((hasBias) => convCase(setup, numChannels, numTaps, activation, hasBias));
    }),
  ),
);
