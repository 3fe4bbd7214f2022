/** Visited by dense pairs over a whole text: how sparse a configuration is. */
import { createFamily, resolvePolicy, rowsOf, type AttentionPolicy } from '@winnow/sparse-attention';
import { Tensor3 } from '@winnow/tensor';
import type { Configuration, Phase } from '../configuration.js';
import { meanOf } from '../logits/statistics.js';

/**
 * Mean over the layers of a model, for a text of `numTokens` tokens of which every query is computed in that phase.
 * Undefined where it depends on the values of queries and keys (`page-topk` with an epsilon).
 */
export function densityOf(
  { attention }: Pick<Configuration, 'attention'>,
  phase: Phase,
  { numTokens, numLayers }: { readonly numTokens: number; readonly numLayers: number },
): number | undefined {
  const known = new Map<string, number | undefined>();
  const densities = resolvePolicy(attention, { numLayers }).map((layer) => {
    const policy = layer[phase];
    const key = JSON.stringify(policy);
    if (!known.has(key)) known.set(key, policyDensity(policy, numTokens));
    return known.get(key);
  });
  return densities.includes(undefined) ? undefined : meanOf(densities.map(Number));
}

/** Counted by running the family on the smallest heads that there are. */
function policyDensity(policy: AttentionPolicy, numTokens: number): number | undefined {
  if (policy.kind === 'dense') return 1;
  if (policy.kind === 'page-topk' && (policy.epsilon > 0 || policy.budget === 'all')) return undefined;
  const rows = Tensor3.create(numTokens, 1, 2);
  const family = createFamily(policy, {
    kv: { keys: rowsOf(rows), values: rowsOf(rows), length: numTokens },
    numHeads: 1,
  });
  family.attend(rows, 0, Tensor3.create(numTokens, 1, 2));
  return family.pairs / ((numTokens * (numTokens + 1)) / 2);
}
