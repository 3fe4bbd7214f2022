import { ArgumentError } from '@winnow/tensor';
import { activationFunction } from '../numerics/activation-functions.js';
import { selectTopK } from '../numerics/select-top-k.js';
import { f32Only, i32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';

const sigmoid = activationFunction('sigmoid');

/** How a router's logits become probabilities, in the order of their encoded values. */
export const routerScores: readonly string[] = ['softmax', 'sigmoid'];

/**
 * Top-k routing: selects the experts of every token and their weights. With `p = softmax(logits)` or `p =
 * sigmoid(logits)`, the experts with the `k` largest `p + bias` are selected, in descending order, ties by lower index.
 * Their weights are `p` without the bias, divided by the sum of the selected p if `normalize`, times `scale`.
 *
 * Shapes: logits `[T, X]`, bias `[X]` f32 with `k <= X`; ids `[T, K]` i32, weights `[T, K]` f32. A softmax over the
 * selected logits alone equals `softmax` with `normalize`. Without bias the order is exactly that of the logits; with
 * bias, that of the sums in f32 or better. NaN counts as smaller than everything. If all selected p are 0, their
 * weights are 0.
 */
export const expertRoute: OpSpec = {
  name: 'expert-route',
  inputs: {
    logits: { dtypes: f32Only, shape: 'T X' },
    bias: { dtypes: f32Only, shape: 'X', optional: true },
  },
  outputs: { ids: { dtypes: i32Only, shape: 'T K' }, weights: { dtypes: f32Only, shape: 'T K' } },
  axes: { T: 'numTokens', X: 'numExperts', K: 'k' },
  attributes: {
    k: { kind: 'number', integer: true },
    score: { kind: 'string', values: routerScores, default: 'softmax' },
    normalize: { kind: 'boolean', default: false },
    scale: { kind: 'number', default: 1 },
  },
  attributeDims: { K: 'k' },
  fixedAxes: ['X'],
  partition: 'tokens',
  work: '4 * logits.numElements',
  check({ logits }, { k }) {
    if (Number(k) < 1 || Number(k) > Number(logits[1])) {
      const expected = `1 to ${String(logits[1])}`;
      throw new ArgumentError({ argument: 'expert-route: k', expected, actual: String(k) });
    }
  },
  bindReference({ inputs: { logits, bias }, outputs: { ids, weights }, attributes }) {
    const k = attributes['k'] as number;
    const isSigmoid = attributes['score'] === 'sigmoid';
    const normalizes = attributes['normalize'] === true;
    const scale = attributes['scale'] as number;
    const numExperts = logits.shape[1];
    const chosen = new Int32Array(k);
    const scores = new Float64Array(numExperts);
    const ranks = new Float64Array(numExperts);
    return () => {
      const numTokens = logits.shape[0];
      for (let t = 0; t < numTokens; t++) {
        const begin = t * numExperts;
        let max = -Infinity;
        for (let x = 0; x < numExperts; x++) max = Math.max(max, logits.data[begin + x]);
        let total = 0;
        for (let x = 0; x < numExperts; x++) {
          const logit = logits.data[begin + x];
          scores[x] = isSigmoid ? sigmoid(logit) : Math.exp(logit - max);
          total += scores[x];
        }
        if (!isSigmoid) for (let x = 0; x < numExperts; x++) scores[x] /= total;
        for (let x = 0; x < numExperts; x++) {
          ranks[x] = bias === undefined ? logits.data[begin + x] : scores[x] + bias.data[x];
        }
        selectTopK(ranks, 0, numExperts, k, chosen, ranks);
        let sum = 0;
        for (let i = 0; i < k; i++) sum += scores[chosen[i]];
        const factor = !normalizes ? scale : sum === 0 ? 0 : scale / sum;
        for (let i = 0; i < k; i++) {
          ids.data[t * k + i] = chosen[i];
          weights.data[t * k + i] = scores[chosen[i]] * factor;
        }
      }
    };
  },
  flops: ({ logits }) => 12 * logits[0] * logits[1],
};
