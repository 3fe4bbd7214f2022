/** Allocations of one phase at rising bounds of divergence. */
import {
  denseAttention,
  formatAttention,
  specOfLayers,
  type AttentionPolicy,
  type AttentionSpec,
} from '@winnow/sparse-attention';
import type { Phase } from '../configuration.js';
import { allocate } from './allocate.js';
import { isRefusal, type Divergences, type TuneBench } from './bench.js';
import type { Candidate, TuneSubject } from './candidates.js';

/** The policies of one phase, by layer, measured on the text of the search. */
export interface FrontPoint {
  readonly phase: Phase;
  /** With the other phase dense. */
  readonly spec: AttentionSpec;
  readonly policies: readonly AttentionPolicy[];
  /** What each layer alone diverges by. */
  readonly divergences: readonly number[];
  /** Predicted share of the cost of dense attention. */
  readonly cost: number;
  /** Of a prefill point also what it adds to decoded tokens. */
  readonly measured: Divergences;
}

/** Bounds to allocate at: from a tenth of the budget to nine times of it; without one from 1e-4 on, with no end. */
export function boundsOf(kld: number | undefined): number[] {
  if (kld === undefined) return [...Array.from({ length: 25 }, (_, i) => 1e-4 * 1.4 ** i), Infinity];
  return Array.from({ length: 21 }, (_, i) => kld * 1.25 ** (i - 10));
}

/** The allocations at the bounds, from dense on, each measured as a whole. Equal ones appear once. */
export async function measureFront(
  bench: TuneBench,
  phase: Phase,
  candidates: readonly Candidate[],
  subject: TuneSubject,
  bounds: readonly number[],
): Promise<FrontPoint[]> {
  const points: FrontPoint[] = [];
  const seen = new Set<string>();
  const { onProgress, signal } = bench.settings;
  for (const [index, bound] of [0, ...bounds].entries()) {
    signal?.throwIfAborted();
    onProgress?.(`${phase}, all layers`, index, bounds.length + 1);
    const point = allocateLayers(phase, candidates, subject, bound);
    const text = formatAttention(point.spec);
    if (seen.has(text)) continue;
    seen.add(text);
    // what a sparse prompt does to later tokens counts, too
    const phases: readonly Phase[] = phase === 'prefill' ? ['prefill', 'decode'] : ['decode'];
    try {
      points.push({ ...point, measured: await bench.divergence(point.spec, 'search', phases) });
    } catch (error) {
      if (!isRefusal(error)) throw error; // policies of different layers may not suit each other
    }
  }
  return points;
}

function allocateLayers(
  phase: Phase,
  candidates: readonly Candidate[],
  { numLayers, layers }: TuneSubject,
  bound: number,
): Omit<FrontPoint, 'measured'> {
  const choices = layers.map((layer) =>
    candidates.flatMap((candidate) => {
      const divergence = candidate.divergences[layer];
      return divergence === undefined || candidate.cost === Infinity
        ? []
        : [{ candidate, divergence, cost: candidate.cost }];
    }),
  );
  const picked = allocate(choices, bound);
  const policies: AttentionPolicy[] = Array.from({ length: numLayers }, () => ({ kind: 'dense' }));
  const divergences = Array.from({ length: numLayers }, () => 0);
  let cost = 0;
  for (const [at, layer] of layers.entries()) {
    const choice = choices[at]?.[picked[at] as number] as (typeof choices)[number][number];
    policies[layer] = choice.candidate.parsed;
    divergences[layer] = choice.divergence;
    cost += choice.cost;
  }
  return { phase, spec: specOfPhase(phase, policies), policies, divergences, cost };
}

/** The policies of a phase, by layer; the other phase is dense. */
function specOfPhase(phase: Phase, policies: readonly AttentionPolicy[]): AttentionSpec {
  const { prefill, decode } = denseAttention;
  return specOfLayers(policies.map((policy) => ({ prefill, decode, [phase]: policy })));
}
