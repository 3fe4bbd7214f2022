/** Density of a configuration: visited pairs divided by dense pairs over a whole text. */
import type { Backend } from '@winnow/ops';
import { attend, resolvePolicy, type AttentionPolicy } from '@winnow/sparse-attention';
import { Tensor3 } from '@winnow/tensor';
import type { Configuration, Phase } from '../configuration.js';
import { meanOf } from '../logits/statistics.js';

export interface DensityOptions {
  readonly numTokens: number;
  readonly numLayers: number;
  /** Default: the reference backend, which is slow. */
  readonly backend?: Backend | undefined;
}

/**
 * Mean over the layers of a model, for a text of `numTokens` tokens with all queries computed in that phase.
 * Undefined where it depends on the values of queries and keys (`page-topk` with an epsilon, `verified-topk`).
 */
export async function densityOf(
  { attention }: Pick<Configuration, 'attention'>,
  phase: Phase,
  { numTokens, numLayers, backend }: DensityOptions,
): Promise<number | undefined> {
  const known = new Map<string, number | undefined>();
  const densities: (number | undefined)[] = [];
  for (const layer of resolvePolicy(attention, { numLayers })) {
    const key = JSON.stringify(layer[phase]);
    if (!known.has(key)) known.set(key, await policyDensity(layer[phase], numTokens, backend));
    densities.push(known.get(key));
  }
  return densities.includes(undefined) ? undefined : meanOf(densities.map(Number));
}

/** Counts with the policy's op on heads of the smallest size. */
async function policyDensity(
  policy: AttentionPolicy,
  numTokens: number,
  backend: Backend | undefined,
): Promise<number | undefined> {
  if (policy.kind === 'dense') return 1;
  if (policy.kind === 'verified-topk') return undefined;
  if (policy.kind === 'page-topk' && (policy.epsilon > 0 || policy.budget === 'all')) return undefined;
  const rows = Tensor3.create(numTokens, 1, 2);
  const { density } = await attend(policy, rows, rows, rows, { backend });
  return density;
}
