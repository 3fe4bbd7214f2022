/** The tuned policies of a phase beside uniform ones, on text that the search has not seen. */
import { formatAttention, formatPolicy } from '@winnow/sparse-attention';
import type { Phase } from '../configuration.js';
import { isRefusal, type TuneBench } from './bench.js';
import { densityOfSpec, meanOf, sharesOf, uniformOf, type TuneSubject } from './candidates.js';
import { timeFront, type FrontPoint, type TimedSpec } from './front.js';
import type { PolicyPoint, UniformComparison } from './options.js';

export interface HeldOutComparison {
  /** The tuned points that no other tuned one beats in both divergence and time, by divergence. */
  readonly front: readonly PolicyPoint[];
  readonly comparisons: readonly UniformComparison[];
}

/** Measures the points of a front, the first of which is dense, and the uniform policies that the engine accepts. */
export async function compareHeldOut(
  bench: TuneBench,
  phase: Phase,
  points: readonly FrontPoint[],
  subject: TuneSubject,
): Promise<HeldOutComparison> {
  const timed = await timeFront(bench, phase, points, uniformOf(bench, phase, subject));
  const all = [...timed.tuned, ...timed.uniform];
  const measured: (PolicyPoint | undefined)[] = [];
  for (const [index, { spec, time }] of all.entries()) {
    bench.settings.onProgress?.(`held-out text, ${phase}`, index, all.length);
    measured.push(await heldOutPoint(bench, { phase, spec, time, subject }));
  }
  // dense attention diverges from itself by rounding, since steps of a prompt add in another order
  const rounding = measured[0]?.kld ?? 0;
  const tuned = measured.slice(0, points.length).filter((point) => point !== undefined);
  const uniform = measured.slice(points.length).filter((point) => point !== undefined);
  return { front: frontOf(tuned), comparisons: uniform.flatMap((point) => compare(bench, point, tuned, rounding)) };
}

interface Measured extends TimedSpec {
  readonly phase: Phase;
  readonly subject: TuneSubject;
}

/** Undefined for a policy that the engine refuses. */
async function heldOutPoint(
  bench: TuneBench,
  { phase, spec, time, subject }: Measured,
): Promise<PolicyPoint | undefined> {
  if (typeof time === 'string') return undefined;
  try {
    const { [phase]: kld } = await bench.divergence(spec, 'heldOut', [phase]);
    const density = await densityOfSpec(bench, spec, phase, subject);
    const policy = spec.layers.length === 0 ? formatPolicy(spec[phase]) : formatAttention(spec);
    return { phase, policy, kld: kld?.mean ?? 0, kldError: kld?.error ?? 0, density, ms: time[phase] };
  } catch (error) {
    if (!isRefusal(error)) throw error;
    return undefined;
  }
}

function frontOf(points: readonly PolicyPoint[]): PolicyPoint[] {
  const front: PolicyPoint[] = [];
  for (const point of points.toSorted((a, b) => a.kld - b.kld || a.ms - b.ms)) {
    if (point.ms < (front.at(-1)?.ms ?? Infinity)) front.push(point);
  }
  return front;
}

/**
 * A uniform policy beside a tuned one that diverges at most as much: the cheapest of those that are faster with fewer
 * pairs, or else the cheapest, which may be the same policy. Cost is what the search saves; where numbers of pairs are
 * not known, it is time.
 * @param rounding by how much more a tuned policy may diverge
 */
function compare(
  bench: TuneBench,
  uniform: PolicyPoint,
  tuned: readonly PolicyPoint[],
  rounding: number,
): UniformComparison[] {
  const rivals = tuned.filter(({ kld }) => kld <= uniform.kld + rounding);
  const hasFewerPairs = ({ density }: PolicyPoint): boolean | undefined =>
    density === undefined || uniform.density === undefined ? undefined : density < uniform.density;
  const isFaster = ({ ms }: PolicyPoint): boolean => ms < uniform.ms;
  const costOf = ({ ms, density }: PolicyPoint): number => {
    const time = ms / uniform.ms;
    const isCounted = density !== undefined && uniform.density !== undefined;
    return isCounted ? meanOf(sharesOf(bench, time, density / uniform.density)) : time;
  };
  const isSparser = (rival: PolicyPoint): boolean => hasFewerPairs(rival) ?? uniform.density === undefined;
  const dominating = rivals.filter((rival) => isFaster(rival) && isSparser(rival));
  const [best] = (dominating.length > 0 ? dominating : rivals).toSorted((a, b) => costOf(a) - costOf(b) || a.ms - b.ms);
  if (best === undefined) return [];
  return [{ uniform, tuned: best, isFaster: isFaster(best), hasFewerPairs: hasFewerPairs(best) }];
}
