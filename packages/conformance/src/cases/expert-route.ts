import type { Arithmetic } from '../arithmetic.js';
import type { Expected, KernelCase } from '../kernel-case.js';
import { close, floats, gaussian, numbersOf } from '../values.js';

interface Routing {
  readonly numTokens: number;
  readonly numExperts: number;
  readonly k: number;
  readonly score: 'softmax' | 'sigmoid';
  readonly normalize: boolean;
  readonly scale?: number;
  readonly content: 'gaussian' | 'ties' | 'far apart' | 'bias';
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
  const { numTokens, numExperts, k, score, normalize, scale = 1, content } = routing;
  const attributes = { k, score, normalize, scale };
  const rule = `${score}${normalize ? ', normalized' : ''}${scale === 1 ? '' : `, times ${scale}`}`;
  return {
    op: 'expert-route',
    name: `${rule}, ${k} of ${numTokens} x ${numExperts}, ${content}`,
    dtypes: {},
    attributes,
    create(rng, arithmetic) {
      const { unit, elementary } = arithmetic;
      const shape = [numTokens, numExperts];
      const random = (): number =>
        content === 'ties' ? rng.nextInt(4) - 2 : rng.nextGaussian() * (content === 'far apart' ? 60 : 2);
      const logits = floats(
        shape,
        Float32Array.from({ length: numTokens * numExperts }, (_, i) => {
          return content === 'far apart' && i % 7 === 3 ? -Infinity : random();
        }),
        0,
      );
      const xs = numbersOf(logits);
      const scoresOf = (t: number): number[] => {
        const row = [...xs.subarray(t * numExperts, (t + 1) * numExperts)];
        if (score === 'sigmoid') return row.map((x) => 1 / (1 + Math.exp(-x)));
        const top = Math.max(...row);
        const logSum = Math.log(row.reduce((sum, x) => sum + Math.exp(x - top), 0)) + top;
        return row.map((x) => Math.exp(x - logSum));
      };
      // sums that differ by less than a rounding error have no defined order: draw until all are well separated
      let bias = gaussian(rng, [numExperts], 0.3);
      const ranksOf = (t: number): number[] => {
        const bs = numbersOf(bias);
        return content === 'bias'
          ? scoresOf(t).map((p, x) => p + bs[x])
          : [...xs.subarray(t * numExperts, (t + 1) * numExperts)];
      };
      const isClear = (t: number): boolean => {
        const sorted = ranksOf(t).sort((a, b) => a - b);
        return sorted.every((rank, i) => i === 0 || rank - sorted[i - 1] > 64 * (unit + elementary));
      };
      if (content === 'bias') {
        while (!Array.from({ length: numTokens }, (_, t) => t).every(isClear)) bias = gaussian(rng, [numExperts], 0.3);
      }
      const ids = Array.from({ length: numTokens }, (_, t) => {
        const ranks = ranksOf(t);
        const order = ranks.map((_rank, x) => x);
        order.sort((a, b) => (ranks[b] === ranks[a] ? a - b : ranks[b] - ranks[a]));
        return order.slice(0, k);
      });
      const weights = expectedWeights(routing, { xs, ids, scoresOf }, arithmetic);
      return {
        inputs: { logits, ...(content === 'bias' ? { bias } : {}) },
        expected: { weights, ids: { kind: 'integers', values: Int32Array.from(ids.flat()) } },
      };
    },
  };
}

const sizes = [
  { numTokens: 0, numExperts: 8, k: 2 },
  { numTokens: 1, numExperts: 1, k: 1 },
  { numTokens: 1, numExperts: 8, k: 2 },
  { numTokens: 3, numExperts: 7, k: 7 },
  { numTokens: 17, numExperts: 33, k: 5 },
  { numTokens: 5, numExperts: 128, k: 8 },
];

export const expertRouteCases: readonly KernelCase[] = sizes.flatMap((size): KernelCase[] => [
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
]);
