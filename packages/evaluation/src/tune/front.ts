/** The front of one phase: allocations at rising bounds of divergence, uniform policies, and what is better than these. */
import {
  denseAttention,
  formatAttention,
  formatPolicy,
  specOfLayers,
  type AttentionPolicy,
  type AttentionSpec,
} from '@winnow/sparse-attention';
import type { Phase } from '../configuration.js';
import { allocate } from './allocate.js';
import { isRefusal, type Divergences, type PhaseTimes, type TuneBench } from './bench.js';
import { checkDense, densityOfSpec, meanOf, sharesOf, specOf, type Candidate, type TuneSubject } from './candidates.js';

/** The policies of one phase, by layer, measured on the text of the search. */
export interface FrontPoint {
  readonly phase: Phase;
  /** With the other phase dense. */
  readonly spec: AttentionSpec;
  readonly policies: readonly AttentionPolicy[];
  /** Whether all layers have the same one. */
  readonly isUniform: boolean;
  /** What each layer alone diverges by. */
  readonly divergences: readonly number[];
  /** Shares of what dense attention takes of each cost that the search saves: measured where time counts. */
  readonly costs: readonly number[];
  /** Their mean. */
  readonly cost: number;
  /** Of a prefill point also what it adds to decoded tokens. */
  readonly measured: Divergences;
}

type Allocation = Omit<FrontPoint, 'measured'>;

/** Bounds to allocate at: from a tenth of the budget to nine times of it; without one from 1e-4 on, with no end. */
export function boundsOf(kld: number | undefined): number[] {
  if (kld === undefined) return [...Array.from({ length: 25 }, (_, i) => 1e-4 * 1.4 ** i), Infinity];
  return Array.from({ length: 21 }, (_, i) => kld * 1.25 ** (i - 10));
}

/** Bounds for allocations that may be better than a uniform policy, as shares of the divergence predicted for it. */
const sharesOfUniform = [1.4, 1.2, 1, 0.9, 0.8] as const;
/** What is better: shares of its divergence, which other text changes a little, and of its cost, which is a prediction. */
const better = { kld: 0.95, cost: 0.97 } as const;

export interface FrontOptions {
  readonly candidates: readonly Candidate[];
  readonly subject: TuneSubject;
  /** Policies of all layers; those among the candidates are points, too. */
  readonly uniform: readonly AttentionPolicy[];
  readonly bounds: readonly number[];
}

/**
 * Dense attention, the allocations at the bounds, the uniform policies, and for each of these an allocation that costs
 * less, by every cost, and diverges less where one is found. Each is measured as a whole; equal ones appear once. No uniform policy is
 * therefore cheaper than every point that diverges at most as much on the text of the search.
 */
export async function measureFront(bench: TuneBench, phase: Phase, options: FrontOptions): Promise<FrontPoint[]> {
  const { candidates, subject, uniform, bounds } = options;
  const { onProgress, signal } = bench.settings;
  const points: FrontPoint[] = [];
  const seen = new Set<string>();
  const add = async (point: Allocation): Promise<void> => {
    signal?.throwIfAborted();
    const text = formatAttention(point.spec);
    if (seen.has(text)) return;
    seen.add(text);
    // what a sparse prompt does to later tokens counts, too
    const phases: readonly Phase[] = phase === 'prefill' ? ['prefill', 'decode'] : ['decode'];
    try {
      points.push({ ...point, measured: await bench.divergence(point.spec, 'search', phases) });
    } catch (error) {
      if (!isRefusal(error)) throw error; // policies of different layers may not suit each other
    }
  };
  const { length } = bounds;
  await add(uniformPoint(phase, candidates[0] as Candidate, subject));
  for (const [index, bound] of [0, ...bounds].entries()) {
    onProgress?.(`${phase}, all layers`, index, length + 1 + uniform.length);
    await add(allocateLayers(phase, candidates, subject, bound));
  }
  for (const [index, policy] of uniform.entries()) {
    onProgress?.(`${phase}, all layers`, length + 1 + index, length + 1 + uniform.length);
    const candidate = candidates.find((one) => one.policy === formatPolicy(policy) && isComplete(one, subject));
    if (candidate === undefined) continue;
    const allocation = uniformPoint(phase, candidate, subject);
    await add(allocation);
    const rival = points.find(({ spec }) => formatAttention(spec) === formatAttention(allocation.spec));
    if (rival === undefined) continue;
    for (const share of sharesOfUniform) {
      if (points.some((point) => isBetter(point, rival))) break;
      await add(allocateLayers(phase, candidates, subject, share * sumOf(rival.divergences), rival));
    }
  }
  return withMeasuredCosts(bench, phase, points, options);
}

export interface TimedSpec {
  readonly spec: AttentionSpec;
  /** Why the engine does not run it, if it does not. */
  readonly time: PhaseTimes | string;
}

/**
 * Times of the points of a front and then of uniform policies, in turns; of one front always the same measurements.
 * @returns as many of each as were given, in their order
 */
export async function timeFront(
  bench: TuneBench,
  phase: Phase,
  points: readonly FrontPoint[],
  uniform: readonly AttentionPolicy[],
): Promise<{ readonly tuned: TimedSpec[]; readonly uniform: TimedSpec[] }> {
  const specs = [...points.map(({ spec }) => spec), ...uniform.map((policy) => specOf(phase, policy))];
  const times = await bench.times(`front, ${phase}`, specs);
  const timed = specs.map((spec, index): TimedSpec => ({ spec, time: times[index] as PhaseTimes | string }));
  return { tuned: timed.slice(0, points.length), uniform: timed.slice(points.length) };
}

/** The points with what they cost as a whole instead of the sum of their layers. The first one is dense attention. */
async function withMeasuredCosts(
  bench: TuneBench,
  phase: Phase,
  points: readonly FrontPoint[],
  { subject, uniform }: FrontOptions,
): Promise<FrontPoint[]> {
  const { costs } = bench.settings;
  if (costs === 'pairs') return [...points];
  const { tuned } = await timeFront(bench, phase, points, uniform);
  const { [phase]: denseMs } = checkDense(tuned[0]?.time ?? 'no policy that runs');
  const result: FrontPoint[] = [];
  for (const [index, point] of points.entries()) {
    const { time } = tuned[index] as TimedSpec;
    if (typeof time === 'string') continue;
    const pairs = costs === 'both' ? await densityOfSpec(bench, point.spec, phase, subject) : undefined;
    const shares = sharesOf(bench, time[phase] / denseMs, pairs);
    result.push({ ...point, costs: shares, cost: meanOf(shares) });
  }
  return result;
}

function isBetter(point: FrontPoint, rival: FrontPoint): boolean {
  const isCheaper = point.costs.every((cost, index) => cost <= better.cost * (rival.costs[index] as number));
  return isCheaper && kldOf(point) <= better.kld * kldOf(rival);
}

function kldOf({ phase, measured }: FrontPoint): number {
  return measured[phase]?.mean ?? 0;
}

function sumOf(divergences: readonly number[]): number {
  return divergences.reduce((sum, divergence) => sum + divergence, 0);
}

function isComplete({ cost, divergences }: Candidate, { layers }: TuneSubject): boolean {
  return cost !== Infinity && layers.every((layer) => divergences[layer] !== undefined);
}

/** One candidate in all layers. */
function uniformPoint(phase: Phase, candidate: Candidate, subject: TuneSubject): Allocation {
  return allocationOf(phase, subject, () => candidate);
}

/** @param rival costs are weighed by what it takes of each, so that both can be less; without one they weigh alike */
function allocateLayers(
  phase: Phase,
  candidates: readonly Candidate[],
  subject: TuneSubject,
  bound: number,
  rival?: Allocation,
): Allocation {
  const choices = subject.layers.map((layer) =>
    candidates.flatMap((candidate) => {
      const divergence = candidate.divergences[layer];
      return divergence === undefined || candidate.cost === Infinity
        ? []
        : [{ candidate, divergence, cost: relativeCost(candidate, rival) }];
    }),
  );
  const picked = allocate(choices, bound);
  const choiceAt = (at: number) => choices[at]?.[picked[at] as number] as (typeof choices)[number][number];
  return allocationOf(phase, subject, (at) => choiceAt(at).candidate);
}

function relativeCost({ costs, cost }: Candidate, rival: Allocation | undefined): number {
  return rival === undefined ? cost : meanOf(costs.map((own, index) => own / (rival.costs[index] as number)));
}

/** @param candidateAt the candidate of the layer at an index of `layers` */
function allocationOf(
  phase: Phase,
  { numLayers, layers }: TuneSubject,
  candidateAt: (at: number) => Candidate,
): Allocation {
  const policies: AttentionPolicy[] = Array.from({ length: numLayers }, () => ({ kind: 'dense' }));
  const divergences = Array.from({ length: numLayers }, () => 0);
  const used = new Set<Candidate>();
  const costs: number[] = [];
  for (const [at, layer] of layers.entries()) {
    const candidate = candidateAt(at);
    used.add(candidate);
    policies[layer] = candidate.parsed;
    divergences[layer] = candidate.divergences[layer] as number;
    for (const [index, cost] of candidate.costs.entries()) costs[index] = (costs[index] ?? 0) + cost;
  }
  const spec = specOfPhase(phase, policies);
  return { phase, spec, policies, isUniform: used.size <= 1, divergences, costs, cost: meanOf(costs) };
}

/** The policies of a phase, by layer; the other phase is dense. */
function specOfPhase(phase: Phase, policies: readonly AttentionPolicy[]): AttentionSpec {
  const { prefill, decode } = denseAttention;
  return specOfLayers(policies.map((policy) => ({ prefill, decode, [phase]: policy })));
}
