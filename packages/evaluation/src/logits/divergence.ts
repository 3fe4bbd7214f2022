/**
 * Divergence of the next-token distributions of a tested run from those of a base run on the same tokens: the
 * statistics of `llama-perplexity --kl-divergence`.
 */
import { ShapeError } from '@winnow/tensor';
import { pearson } from './correlation.js';
import { covarianceOf, estimate, meanOf, percentile, type Estimate } from './statistics.js';

/** Quantiles of the divergence to report. */
export const divergencePercentiles = [0.999, 0.99, 0.95, 0.9, 0.5, 0.1, 0.05, 0.01] as const;

/** Mean divergence of common weight formats, as a familiar scale. */
export type DivergenceClass = 'lossless' | 'Q6_K' | 'Q4_K_M' | 'below Q4_K_M';

export function divergenceClass(meanDivergence: number): DivergenceClass {
  if (meanDivergence <= 0.0014) return 'lossless';
  if (meanDivergence <= 0.005) return 'Q6_K';
  return meanDivergence <= 0.03 ? 'Q4_K_M' : 'below Q4_K_M';
}

/** Divergence of the positions `[begin, end)`. */
export interface PositionBucket {
  readonly begin: number;
  readonly end: number;
  readonly count: number;
  readonly meanDivergence: number;
}

export interface DivergenceReport {
  readonly numTokens: number;
  /** Perplexities `exp(mean -ln p(next))`; errors by propagation. */
  readonly basePpl: Estimate;
  readonly testedPpl: Estimate;
  /** tested / base */
  readonly pplRatio: Estimate;
  /** tested - base */
  readonly pplDifference: Estimate;
  /** Correlation of `-ln p(next)` over the tokens. */
  readonly correlation: number;
  /** KL(base || tested) in nats. */
  readonly divergence: Estimate & {
    readonly max: number;
    readonly min: number;
    /** By quantile, such as `0.999`. */
    readonly percentiles: Readonly<Record<string, number>>;
  };
  readonly class: DivergenceClass;
  /** Probability of the next token, tested - base. */
  readonly deltaP: Estimate & { readonly rms: number };
  /** Share of positions where both have the same most probable token. */
  readonly sameTop: Estimate;
  readonly buckets: readonly PositionBucket[];
}

/** One position of both runs. */
export interface RowDivergence {
  /** -ln p(next) */
  readonly baseLoss: number;
  readonly testedLoss: number;
  /** Sum over the vocabulary of p_base (ln p_base - ln p_tested); not below 0. */
  readonly divergence: number;
  readonly deltaP: number;
  readonly hasSameTop: boolean;
}

/** Compares the log-probabilities of one position. Sums in f64. @throws {ShapeError} for rows of different length */
export function compareRows(base: Float32Array, tested: Float32Array, nextToken: number): RowDivergence {
  if (base.length !== tested.length) {
    const [expected, actual] = [String(base.length), String(tested.length)];
    throw new ShapeError({ op: 'compareRows', rule: 'vocabulary', expected, actual });
  }
  let divergence = 0;
  let baseTop = 0;
  let testedTop = 0;
  for (let id = 0; id < base.length; id++) {
    const p = Math.exp(base[id]);
    if (p > 0) divergence += p * (base[id] - tested[id]);
    if (base[id] > base[baseTop]) baseTop = id;
    if (tested[id] > tested[testedTop]) testedTop = id;
  }
  return {
    baseLoss: -base[nextToken],
    testedLoss: -tested[nextToken],
    divergence: Math.max(0, divergence), // rounding of f32 rows may make it negative
    deltaP: Math.exp(tested[nextToken]) - Math.exp(base[nextToken]),
    hasSameTop: baseTop === testedTop,
  };
}

/** Accumulates positions one by one: stores a few numbers of each, never the rows. */
export class DivergenceCollector {
  readonly #rows: (RowDivergence & { readonly position: number })[] = [];

  add(position: number, base: Float32Array, tested: Float32Array, nextToken: number): void {
    this.#rows.push({ position, ...compareRows(base, tested, nextToken) });
  }

  /** @param numBuckets number of equal parts that the positions are divided into */
  report(numBuckets = 4): DivergenceReport {
    const rows = this.#rows;
    const column = (pick: (row: RowDivergence) => number): Float64Array => Float64Array.from(rows, pick);
    const base = column((row) => row.baseLoss);
    const tested = column((row) => row.testedLoss);
    const divergences = column((row) => row.divergence);
    const deltas = column((row) => row.deltaP);
    const sorted = divergences.toSorted();
    const divergence = estimate(divergences);
    return {
      numTokens: rows.length,
      ...perplexities(base, tested),
      correlation: pearson(base, tested),
      divergence: {
        ...divergence,
        max: sorted.at(-1) ?? 0,
        min: sorted[0] ?? 0,
        percentiles: Object.fromEntries(divergencePercentiles.map((p) => [String(p), percentile(sorted, p)])),
      },
      class: divergenceClass(divergence.mean),
      deltaP: { ...estimate(deltas), rms: Math.sqrt(meanOf(deltas.map((delta) => delta * delta))) },
      sameTop: estimate(column((row) => Number(row.hasSameTop))),
      buckets: bucketsOf(rows, numBuckets),
    };
  }
}

type Perplexities = Pick<DivergenceReport, 'basePpl' | 'testedPpl' | 'pplRatio' | 'pplDifference'>;

/** First-order propagation of the errors of the mean losses, with their covariance. */
function perplexities(base: Float64Array, tested: Float64Array): Perplexities {
  const [lossBase, lossTested] = [estimate(base), estimate(tested)];
  const [basePpl, testedPpl] = [Math.exp(lossBase.mean), Math.exp(lossTested.mean)];
  const covariance = base.length < 2 ? 0 : covarianceOf(base, tested) / (base.length - 1);
  const ratio = testedPpl / basePpl;
  const spread = (a: number, b: number): number =>
    Math.sqrt(Math.max(0, (a * lossTested.error) ** 2 + (b * lossBase.error) ** 2 - 2 * a * b * covariance));
  return {
    basePpl: { mean: basePpl, error: basePpl * lossBase.error },
    testedPpl: { mean: testedPpl, error: testedPpl * lossTested.error },
    pplRatio: { mean: ratio, error: ratio * spread(1, 1) },
    pplDifference: { mean: testedPpl - basePpl, error: spread(testedPpl, basePpl) },
  };
}

function bucketsOf(rows: readonly (RowDivergence & { readonly position: number })[], count: number): PositionBucket[] {
  const first = rows[0]?.position ?? 0;
  const size = Math.max(1, Math.ceil(((rows.at(-1)?.position ?? -1) + 1 - first) / count));
  return Array.from({ length: count }, (_, i) => {
    const [begin, end] = [first + i * size, first + (i + 1) * size];
    const inside = rows.filter(({ position }) => position >= begin && position < end);
    return { begin, end, count: inside.length, meanDivergence: meanOf(inside.map((row) => row.divergence)) };
  }).filter((bucket) => bucket.count > 0);
}
