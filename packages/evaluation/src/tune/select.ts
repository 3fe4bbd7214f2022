/** Chooses the allocations of both phases that keep the budget at the least time. */
import { denseAttention, specOfLayers, type AttentionSpec, type PolicyBudget } from '@winnow/sparse-attention';
import { ArgumentError } from '@winnow/tensor';
import { meanOf } from '../logits/statistics.js';
import type { TaskScore } from '../tasks/run-tasks.js';
import type { Divergences, Side, TuneBench } from './bench.js';
import type { FrontPoint } from './front.js';

/** An allocation of each phase, run together. */
export interface Selection {
  readonly prefill: FrontPoint;
  readonly decode: FrontPoint;
  readonly spec: AttentionSpec;
  /** Predicted divergence: the larger one of both phases. */
  readonly kld: number;
  /** Predicted share of the cost of dense attention of a prompt and its answer. */
  readonly cost: number;
}

/** Both phases with their shares of the time of dense attention. */
export interface PhaseShares {
  readonly prefill: number;
  readonly decode: number;
}

/**
 * Every pair of allocations. Decoded tokens diverge by their own policies and by those of the prompt before them;
 * small divergences add up.
 */
export function pairsOf(
  prefills: readonly FrontPoint[],
  decodes: readonly FrontPoint[],
  shares: PhaseShares,
): Selection[] {
  return prefills.flatMap((prefill) =>
    decodes.map((decode): Selection => {
      const later = (prefill.measured.decode?.mean ?? 0) + (decode.measured.decode?.mean ?? 0);
      const layers = prefill.policies.map((policy, layer) => ({
        prefill: policy,
        decode: decode.policies[layer] as typeof policy,
      }));
      return {
        prefill,
        decode,
        spec: specOfLayers(layers),
        kld: Math.max(prefill.measured.prefill?.mean ?? 0, later),
        cost: shares.prefill * prefill.cost + shares.decode * decode.cost,
      };
    }),
  );
}

/** The larger divergence of both phases. */
export function worstOf({ prefill, decode }: Divergences): number {
  return Math.max(prefill?.mean ?? 0, decode?.mean ?? 0);
}

function isDense({ prefill, decode }: Selection): boolean {
  return [...prefill.policies, ...decode.policies].every(({ kind }) => kind === 'dense');
}

export function meanScore(scores: readonly TaskScore[]): number {
  return meanOf(scores.map(({ mean }) => mean));
}

/** Tries, each with a tighter prediction than the one before. */
const maxTries = 16;

/**
 * The cheapest pair within the budget, or of a speed-up the one that diverges least: predicted, then measured, on the
 * text of the search and on held-out text. After a miss, predictions are corrected by what was missed.
 * @param timeOf measures the time of a pair as a share of that of dense attention; for a budget of speed-up
 * @throws {ArgumentError} when no pair has the speed-up
 */
export async function selectPair(
  bench: TuneBench,
  pairs: readonly Selection[],
  budget: PolicyBudget,
  timeOf: (pair: Selection) => Promise<number>,
): Promise<Selection> {
  if ('speedup' in budget) return selectFaster(pairs, budget.speedup, timeOf);
  const found = (await cheapestWithin(bench, pairs, budget)) ?? pairs.find(isDense);
  return 'kld' in budget ? cheaperUniform(bench, pairs, found as Selection, budget) : (found as Selection);
}

async function cheapestWithin(
  bench: TuneBench,
  pairs: readonly Selection[],
  budget: Exclude<PolicyBudget, { readonly speedup: number }>,
): Promise<Selection | undefined> {
  let bound = 'kld' in budget ? budget.kld : Infinity;
  for (let round = 0; round < maxTries; round++) {
    const [best] = pairs.filter(({ kld }) => kld <= bound).toSorted((a, b) => a.cost - b.cost || a.kld - b.kld);
    if (best === undefined) break;
    const excess = await excessOf(bench, best, budget);
    if (excess <= 1) return best;
    // the cheapest pair that is predicted to diverge by less, in the proportion of the miss
    bound = best.kld / Math.min(4, Math.max(1.05, excess));
  }
  return undefined;
}

/** The cheapest pair of uniform policies that keeps the budget, if it costs less: corrections may have ruled it out. */
async function cheaperUniform(
  bench: TuneBench,
  pairs: readonly Selection[],
  found: Selection,
  budget: { readonly kld: number },
): Promise<Selection> {
  const rivals = pairs.filter(
    ({ prefill, decode, kld, cost }) => prefill.isUniform && decode.isUniform && kld <= budget.kld && cost < found.cost,
  );
  for (const rival of rivals.toSorted((a, b) => a.cost - b.cost)) {
    if ((await excessOf(bench, rival, budget)) <= 1) return rival;
  }
  return found;
}

/** By which factor a pair exceeds the budget on either text; at most 1 when it keeps it. */
async function excessOf(
  bench: TuneBench,
  pair: Selection,
  budget: Exclude<PolicyBudget, { readonly speedup: number }>,
): Promise<number> {
  let worst = 0;
  for (const side of ['search', 'heldOut'] as const satisfies readonly Side[]) {
    bench.settings.onProgress?.(`both phases, ${side === 'search' ? 'text of the search' : 'held-out text'}`, 0, 1);
    if ('kld' in budget) {
      const measured = await bench.divergence(pair.spec, side, ['prefill', 'decode']);
      worst = Math.max(worst, worstOf(measured) / budget.kld);
    } else {
      const wanted = budget.recall * meanScore(await bench.tasks(denseAttention, side));
      const recall = meanScore(await bench.tasks(pair.spec, side));
      // recall has no measure of how much too sparse a policy is: predictions tighten by a third
      worst = Math.max(worst, recall >= wanted ? 1 : 1.5);
    }
    if (worst > 1) break;
  }
  return worst;
}

async function selectFaster(
  pairs: readonly Selection[],
  speedup: number,
  timeOf: (pair: Selection) => Promise<number>,
): Promise<Selection> {
  let bound = 1 / speedup;
  let fastest = 1;
  for (let round = 0; round < maxTries; round++) {
    const [best] = pairs.filter(({ cost }) => cost <= bound).toSorted((a, b) => a.kld - b.kld || a.cost - b.cost);
    if (best === undefined) break;
    const time = await timeOf(best);
    fastest = Math.min(fastest, time);
    if (time <= 1 / speedup) return best;
    bound = best.cost * Math.min(0.99, 1 / speedup / time);
  }
  const [cheapest] = pairs.toSorted((a, b) => a.cost - b.cost);
  if (cheapest !== undefined) fastest = Math.min(fastest, await timeOf(cheapest));
  const expected = `at most ${(1 / fastest).toFixed(2)}, the most that the tried policies reach on this machine`;
  throw new ArgumentError({ argument: 'budget.speedup', expected, actual: String(speedup) });
}
