import { f32Only, i32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';

/**
 * The neurons that some token needs: f is active unless `scores[t, f] < thresholds[f]` for every token t. If more than
 * `maxRatio * F` are active, all are, since computing everything is then faster.
 *
 * Shapes: scores `[T, F]` f32, thresholds `[F]` f32; ids `[F]` i32: the active ones in ascending order, then zeros;
 * count `[1]` i32: their number. With `absolute`, magnitudes of scores are compared. NaN is never below a threshold, so
 * its neuron is active. Without tokens, no neuron is active.
 */
export const activeNeurons: OpSpec = {
  name: 'active-neurons',
  inputs: { scores: { dtypes: f32Only, shape: 'T F' }, thresholds: { dtypes: f32Only, shape: 'F' } },
  outputs: { ids: { dtypes: i32Only, shape: 'F' }, count: { dtypes: i32Only, shape: '1' } },
  axes: { T: 'numTokens', F: 'numNeurons' },
  attributes: { absolute: { kind: 'boolean', default: false }, maxRatio: { kind: 'number', default: 1 } },
  fixedAxes: ['F'],
  partition: 'rows',
  work: '6 * scores.numElements', // mostly memory latency
  bindReference({ inputs: { scores, thresholds }, outputs: { ids, count }, attributes }) {
    const maxRatio = attributes['maxRatio'] as number;
    const absolute = attributes['absolute'] as boolean;
    return () => {
      const [numTokens, numNeurons] = scores.shape;
      const isActive = (neuron: number): boolean => {
        for (let t = 0; t < numTokens; t++) {
          if (isNeuronActive(scores.data[t * numNeurons + neuron], thresholds.data[neuron], absolute)) return true;
        }
        return false;
      };
      let numActive = 0;
      for (let neuron = 0; neuron < numNeurons; neuron++) if (isActive(neuron)) ids.data[numActive++] = neuron;
      if (numActive > maxRatio * numNeurons) {
        numActive = numNeurons;
        for (let neuron = 0; neuron < numNeurons; neuron++) ids.data[neuron] = neuron;
      }
      for (let i = numActive; i < numNeurons; i++) ids.data[i] = 0;
      count.data[0] = numActive;
    };
  },
  flops: ({ scores }) => scores[0] * scores[1],
};

/** Whether one token needs a neuron. NaN is never below a threshold. */
export function isNeuronActive(score: number, threshold: number, absolute: boolean): boolean {
  return !((absolute ? Math.abs(score) : score) < threshold);
}
