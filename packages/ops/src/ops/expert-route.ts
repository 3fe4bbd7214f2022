import { ArgumentError } from '@winnow/tensor';
import { activationFunction } from '../numerics/activation-functions.js';
import { selectTopK } from '../numerics/select-top-k.js';
import { f32Only, i32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';

const sigmoid = activationFunction('sigmoid');

/** How a router's logits become probabilities, in the order of their encoded values. */
export const routerScores: readonly string[] = ['softmax', 'sigmoid'];

/** How a group of experts is ranked: by its largest rank, or by the sum of its two largest; in the order of the encoded values. */
export const groupScores: readonly string[] = ['best', 'best-two'];

/**
 * Top-k routing: selects the experts of every token and their weights. With `p = softmax(logits)` or `p =
 * sigmoid(logits)`, the experts with the `k` largest `p + bias` are selected, in descending order, ties by lower index.
 * Their weights are `p` without the bias, divided by the sum of the selected p if `normalize`, times `scale`.
 *
 * With `numGroups` G > 1 the experts are G groups of X / G neighbors, and only experts of the `numChosenGroups` best groups
 * are selected. A group is ranked by `groupScore`: the largest `p + bias` of its experts, or the sum of the two largest;
 * ties go to the lower index.
 *
 * Shapes: logits `[T, X]`, bias `[X]` f32 with `k <= X`; ids `[T, K]` i32, weights `[T, K]` f32. A softmax over the
 * selected logits alone equals `softmax` with `normalize`. Without bias and groups the order is exactly that of the
 * logits; otherwise that of the sums in f32 or better. NaN counts as smaller than everything. If all selected p are 0,
 * their weights are 0.
 *
 * Source: groups by their best expert arXiv:2405.04434 section 2.2.2, by their best two arXiv:2412.19437 section 2.1.2.
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
    numGroups: { kind: 'number', integer: true, default: 1 },
    numChosenGroups: { kind: 'number', integer: true, default: 1 },
    groupScore: { kind: 'string', values: groupScores, default: 'best' },
  },
  attributeDims: { K: 'k' },
  fixedAxes: ['X'],
  partition: 'tokens',
  work: '4 * logits.numElements',
  check({ logits }, { k, numGroups, numChosenGroups, groupScore }) {
    const numExperts = Number(logits[1]);
    const [groups, chosen] = [Number(numGroups), Number(numChosenGroups)];
    const groupSize = numExperts / groups;
    if (groups < 1 || !Number.isInteger(groupSize) || (groups > 1 && groupScore === 'best-two' && groupSize < 2)) {
      const expected = `a divisor of ${numExperts}${groupScore === 'best-two' ? ' with groups of at least 2' : ''}`;
      throw new ArgumentError({ argument: 'expert-route: numGroups', expected, actual: String(groups) });
    }
    if (chosen < 1 || chosen > groups) {
      const expected = `1 to ${groups}`;
      throw new ArgumentError({ argument: 'expert-route: numChosenGroups', expected, actual: String(chosen) });
    }
    if (Number(k) < 1 || Number(k) > chosen * groupSize) {
      const expected = `1 to ${chosen * groupSize}`;
      throw new ArgumentError({ argument: 'expert-route: k', expected, actual: String(k) });
    }
  },
  bindReference({ inputs: { logits, bias }, outputs: { ids, weights }, attributes }) {
    const k = attributes['k'] as number;
    const isSigmoid = attributes['score'] === 'sigmoid';
    const normalizes = attributes['normalize'] === true;
    const scale = attributes['scale'] as number;
    const numExperts = logits.shape[1];
    const numGroups = attributes['numGroups'] as number;
    const excludeGroups = groupFilter(
      numGroups,
      attributes['numChosenGroups'] as number,
      numExperts / numGroups,
      attributes['groupScore'] === 'best-two',
    );
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
          if (bias !== undefined) ranks[x] = scores[x] + bias.data[x];
          else ranks[x] = numGroups > 1 ? scores[x] : logits.data[begin + x];
        }
        excludeGroups(ranks);
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

/** Returns a function that sets the ranks of all experts outside of the best groups to -Infinity. */
function groupFilter(
  numGroups: number,
  numChosen: number,
  groupSize: number,
  countsTwo: boolean,
): (ranks: Float64Array) => void {
  const order = new Int32Array(numGroups);
  const groupRanks = new Float64Array(numGroups);
  return (ranks) => {
    if (numGroups === 1) return;
    for (let group = 0; group < numGroups; group++) {
      let [first, second] = [-Infinity, -Infinity];
      for (let i = group * groupSize; i < (group + 1) * groupSize; i++) {
        if (ranks[i] > first) [first, second] = [ranks[i], first];
        else if (ranks[i] > second) second = ranks[i];
      }
      groupRanks[group] = countsTwo ? first + second : first;
    }
    selectTopK(groupRanks, 0, numGroups, numGroups, order, groupRanks);
    for (const group of order.subarray(numChosen)) {
      ranks.fill(-Infinity, group * groupSize, (group + 1) * groupSize);
    }
  };
}
