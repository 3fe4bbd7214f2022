import type { Rng } from '@winnow/tensor';
import type { Arithmetic } from '../arithmetic.js';
import type { CaseTensor, Expected, KernelCase } from '../kernel-case.js';
import { close, floats, gaussian, numbersOf } from '../values.js';

interface Routing {
  readonly numTokens: number;
  readonly numExperts: number;
  readonly k: number;
  readonly score: 'softmax' | 'sigmoid';
  readonly normalize: boolean;
  readonly scale?: number;
  readonly content: 'gaussian' | 'ties' | 'far apart' | 'bias';
  readonly groups?: Groups;
}

/** Groups of experts, of which `numChosenGroups` take part in the selection. */
interface Groups {
  readonly numGroups: number;
  readonly numChosenGroups: number;
  readonly groupScore: 'best' | 'best-two';
}

/** The ranks of groups of neighbors. */
function groupRanks(ranks: readonly number[], { numGroups, groupScore }: Groups): number[] {
  const size = ranks.length / numGroups;
  return Array.from({ length: numGroups }, (_, group) => {
    const best = ranks.slice(group * size, (group + 1) * size).sort((a, b) => b - a);
    return groupScore === 'best' ? best[0] : best[0] + best[1];
  });
}

/** Indices in the order of selection: the largest first, ties by lower index. */
function orderOf(ranks: readonly number[]): number[] {
  return ranks.map((_, x) => x).sort((a, b) => (ranks[b] === ranks[a] ? a - b : ranks[b] - ranks[a]));
}

/** The selected experts of a token. */
function selected(ranks: readonly number[], k: number, groups: Groups | undefined): number[] {
  if (groups === undefined) return orderOf(ranks).slice(0, k);
  const chosen = orderOf(groupRanks(ranks, groups)).slice(0, groups.numChosenGroups);
  const size = ranks.length / groups.numGroups;
  return orderOf(ranks)
    .filter((x) => chosen.includes(Math.floor(x / size)))
    .slice(0, k);
}

/** Logits `[T, X]`, the selected experts, and the scores of a token. */
interface Routed {
  readonly xs: Float64Array;
  readonly ids: readonly (readonly number[])[];
  readonly scoresOf: (token: number) => readonly number[];
}

/**
 * Bound: exp of a difference that was rounded; the sum over all experts; then the sum of the selected weights, quotient, product.
 * Where exp leaves the range of float32 the result may be 0.
 */
function expectedWeights(
  { numTokens, numExperts, k, score, normalize, scale = 1 }: Routing,
  { xs, ids, scoresOf }: Routed,
  { unit, elementary, tiny }: Arithmetic,
): Expected {
  return close(numTokens * k, (index) => {
    const [t, i] = [Math.floor(index / k), index % k];
    const scores = scoresOf(t);
    const chosen = ids[t].map((x) => scores[x]);
    const sum = chosen.reduce((total, p) => total + p, 0);
    const value = (normalize ? chosen[i] / sum : chosen[i]) * Math.fround(scale);
    const top = Math.max(...xs.subarray(t * numExperts, (t + 1) * numExperts));
    const distance = Math.min(Math.max(...ids[t].map((x) => Math.abs(xs[t * numExperts + x] - top))), 200);
    const relative = 2 * (elementary + (score === 'softmax' ? distance : 0) * unit) + (numExperts + k + 6) * unit;
    return [value, relative * value + 2 ** -126 * 2 * (k + 1) * (normalize ? 1 / sum : 1) * scale + tiny];
  });
}

function routeCase(routing: Routing): KernelCase {
  const { numTokens, numExperts, k, score, normalize, scale = 1, content, groups } = routing;
  const rule = `${score}${normalize ? ', normalized' : ''}${scale === 1 ? '' : `, times ${scale}`}`;
  return {
    op: 'expert-route',
    name: `${rule}, ${k} of ${numTokens} x ${numExperts}, ${content}${groupText(groups)}`,
    dtypes: {},
    attributes: { k, score, normalize, scale, ...groups },
    create(rng, arithmetic) {
      const { logits, bias, ranksOf, scoresOf } = drawInputs(rng, routing, arithmetic);
      const ids = Array.from({ length: numTokens }, (_, t) => selected(ranksOf(t), k, groups));
      const weights = expectedWeights(routing, { xs: numbersOf(logits), ids, scoresOf }, arithmetic);
      return {
        inputs: { logits, ...(content === 'bias' ? { bias } : {}) },
        expected: { weights, ids: { kind: 'integers', values: Int32Array.from(ids.flat()) } },
      };
    },
  };
}

/** Inputs with scores and ranks of the experts of a token. */
interface Drawn {
  readonly logits: CaseTensor;
  readonly bias: CaseTensor;
  readonly scoresOf: (token: number) => number[];
  readonly ranksOf: (token: number) => number[];
}

/** Sums and groups that differ by less than a rounding error have no defined order: drawn until all are well separated. */
function drawInputs(rng: Rng, routing: Routing, { unit, elementary }: Arithmetic): Drawn {
  const { numTokens, numExperts, content, groups } = routing;
  let logits = drawLogits(rng, routing);
  let bias = gaussian(rng, [numExperts], 0.3);
  const scoresOf = (t: number): number[] => rowScores(rowOf(logits, t, numExperts), routing.score);
  const ranksOf = (t: number): number[] => {
    const bs = numbersOf(bias);
    if (content === 'bias') return scoresOf(t).map((p, x) => p + bs[x]);
    return groups !== undefined ? scoresOf(t) : rowOf(logits, t, numExperts);
  };
  // without a bias the errors of scores are relative to them
  const isSpread = (ranks: readonly number[]): boolean => {
    const sorted = ranks.toSorted((a, b) => a - b);
    return sorted.every((rank, i) => {
      const size = content === 'bias' ? 1 : rank;
      return i === 0 || rank - sorted[i - 1] > 64 * (unit + elementary) * size;
    });
  };
  const isClear = (t: number): boolean =>
    isSpread(ranksOf(t)) && (groups === undefined || isSpread(groupRanks(ranksOf(t), groups)));
  const tokens = Array.from({ length: numTokens }, (_, t) => t);
  while ((content === 'bias' || groups !== undefined) && !tokens.every(isClear)) {
    if (content === 'bias') bias = gaussian(rng, [numExperts], 0.3);
    else logits = drawLogits(rng, routing);
  }
  return { logits, bias, scoresOf, ranksOf };
}

function drawLogits(rng: Rng, { numTokens, numExperts, content }: Routing): CaseTensor {
  const random = (): number =>
    content === 'ties' ? rng.nextInt(4) - 2 : rng.nextGaussian() * (content === 'far apart' ? 60 : 2);
  const values = Float32Array.from({ length: numTokens * numExperts }, (_, i) => {
    return content === 'far apart' && i % 7 === 3 ? -Infinity : random();
  });
  return floats([numTokens, numExperts], values, 0);
}

function rowOf(logits: CaseTensor, t: number, numExperts: number): number[] {
  return [...numbersOf(logits).subarray(t * numExperts, (t + 1) * numExperts)];
}

function rowScores(row: readonly number[], score: Routing['score']): number[] {
  if (score === 'sigmoid') return row.map((x) => 1 / (1 + Math.exp(-x)));
  const top = Math.max(...row);
  const logSum = Math.log(row.reduce((sum, x) => sum + Math.exp(x - top), 0)) + top;
  return row.map((x) => Math.exp(x - logSum));
}

function groupText(groups: Groups | undefined): string {
  if (groups === undefined) return '';
  return `, ${groups.numChosenGroups} of ${groups.numGroups} groups by ${groups.groupScore}`;
}

/** Few groups, groups of two, all groups but one, and as many experts as the groups have. */
const groupSizes = [
  { numTokens: 1, numExperts: 8, k: 2, numGroups: 2, numChosenGroups: 1 },
  { numTokens: 17, numExperts: 6, k: 4, numGroups: 3, numChosenGroups: 2 },
  { numTokens: 5, numExperts: 40, k: 6, numGroups: 8, numChosenGroups: 3 },
  { numTokens: 3, numExperts: 33, k: 5, numGroups: 3, numChosenGroups: 3 },
];

const sizes = [
  { numTokens: 0, numExperts: 8, k: 2 },
  { numTokens: 1, numExperts: 1, k: 1 },
  { numTokens: 1, numExperts: 8, k: 2 },
  { numTokens: 3, numExperts: 7, k: 7 },
  { numTokens: 17, numExperts: 33, k: 5 },
  { numTokens: 5, numExperts: 128, k: 8 },
];

export const expertRouteCases: readonly KernelCase[] = [
  ...sizes.flatMap((size) => ungrouped(size)),
  ...groupSizes.flatMap(({ numTokens, numExperts, k, numGroups, numChosenGroups }): KernelCase[] => {
    const size = { numTokens, numExperts, k };
    const groups = (groupScore: Groups['groupScore']): Groups => ({ numGroups, numChosenGroups, groupScore });
    return [
      routeCase({ ...size, score: 'softmax', normalize: false, content: 'gaussian', groups: groups('best') }),
      routeCase({ ...size, score: 'sigmoid', normalize: true, content: 'bias', groups: groups('best-two') }),
    ];
  }),
];

function ungrouped(size: Pick<Routing, 'numTokens' | 'numExperts' | 'k'>): KernelCase[] {
  return [
    ...(['softmax', 'sigmoid'] as const).flatMap((score) =>
      [false, true].flatMap((normalize) =>
        (['gaussian', 'ties'] as const).map((content) => routeCase({ ...size, score, normalize, content })),
      ),
    ),
    routeCase({ ...size, score: 'softmax', normalize: false, content: 'far apart' }),
    routeCase({ ...size, score: 'softmax', normalize: true, content: 'far apart' }),
    routeCase({ ...size, score: 'sigmoid', normalize: true, content: 'bias' }),
    routeCase({ ...size, score: 'softmax', normalize: true, scale: 2.5, content: 'gaussian' }),
    routeCase({ ...size, score: 'sigmoid', normalize: false, scale: 0.5, content: 'gaussian' }),
  ];
}
