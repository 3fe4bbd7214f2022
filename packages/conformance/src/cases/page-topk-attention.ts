import {
  attentionAttributes,
  attentionSums,
  createAttention,
  type AttentionSetup,
  type SeenKey,
} from '../attention-setup.js';
import type { KernelCase } from '../kernel-case.js';
import { attended, inputNumbers, integers, masses, randomMeans, rowOf, summaryIndex } from '../sparse-setup.js';
import { chunkOf, massSetups, severalSequences, sparseSetup, sparseSetups } from '../sparse-setups.js';
import { close, floats, integersOf } from '../values.js';

interface Sparsity {
  readonly budget?: number;
  readonly epsilon?: number;
  readonly sinks?: number;
  readonly local?: number;
  readonly numParts?: number;
  readonly mass?: boolean;
}

interface Page {
  readonly index: number;
  readonly summary: number;
  /** Seen keys of each query head of the group. */
  readonly keys: readonly SeenKey[][];
  /** Upper bound for each query head, and its error. */
  readonly bounds: readonly number[];
  readonly error: number;
  readonly isExact: boolean;
}

function pageCase(setup: AttentionSetup, sparsity: Sparsity): KernelCase {
  const { budget = -1, epsilon = 0, sinks = 0, local = 1, numParts = 1, mass = false } = sparsity;
  return {
    op: 'page-topk-attention',
    name: `${setup.name}, budget ${budget}, epsilon ${epsilon}, sinks ${sinks}, local ${local}, ${numParts} parts${mass ? ', mass' : ''}`,
    dtypes: { keys: setup.keyDType, values: setup.valueDType },
    attributes: { ...attentionAttributes(setup), budget, epsilon, sinks, local, mass },
    create(rng, arithmetic) {
      const problem = createAttention(setup, rng, arithmetic);
      const { queries, numHeads, numKvHeads, headDim, valueDim, blockSize, contextLengths, softCap } = setup;
      const { unit, elementary } = arithmetic;
      const groupSize = numHeads / numKvHeads;
      const pageSize = blockSize / numParts;
      const boxes = randomBoxes();
      const counts = integersOf(boxes.boxCounts);
      const [low, high, norms] = [boxes.low, boxes.high, boxes.norms];
      const qs = inputNumbers(problem, 'q');
      const attendedKeys: SeenKey[][] = [];
      const certificates: [number, number][] = [];
      const errorBounds: [number, number][] = [];
      const [numPages, numPairs]: [number[], number[]] = [[], []];

      for (const [query, [sequence, position]] of queries.entries()) {
        for (let kvHead = 0; kvHead < numKvHeads; kvHead++) {
          const heads = Array.from({ length: groupSize }, (_, g) => kvHead * groupSize + g);
          const seen = heads.map((head) => problem.seen(query, head));
          const pages: Page[] = [];
          for (let index = 0; index * pageSize < contextLengths[sequence]; index++) {
            const summary = summaryIndex(problem, numParts, sequence, index, kvHead);
            const keys = seen.map((row) => row.filter(({ slot }) => Math.floor(slot / pageSize) === index));
            if (keys[0].length === 0) continue;
            const isNear = keys[0].some((key) => key.position < sinks || position - key.position < local);
            let error = 0;
            const bounds = heads.map((head) => {
              const q = rowOf(qs, query * numHeads + head, headDim);
              let sum = 0;
              let magnitude = 0;
              for (const [i, x] of q.entries()) {
                const [a, b] = [low[summary * headDim + i], high[summary * headDim + i]];
                sum += Math.max(problem.scale * x * a, problem.scale * x * b);
                magnitude += problem.scale * Math.abs(x) * Math.max(Math.abs(a), Math.abs(b));
              }
              error = Math.max(error, (headDim + 5) * unit * magnitude);
              return softCap === 0 ? sum : softCap * Math.tanh(sum / softCap);
            });
            if (softCap !== 0) error += (elementary + 4 * unit) * softCap;
            pages.push({ index, summary, keys, bounds, error, isExact: isNear || counts[summary] !== pageSize });
          }
          const kept = pages.filter(({ isExact }) => isExact);
          const order = pages
            .filter(({ isExact }) => !isExact)
            .sort((a, b) => Math.max(...b.bounds) - Math.max(...a.bounds) || a.index - b.index);
          for (const [i, page] of order.entries()) {
            const next = order[i + 1];
            if (next === undefined || i + 1 > (budget === -1 ? Infinity : budget)) break;
            const gap = Math.max(...page.bounds) - Math.max(...next.bounds);
            if (gap <= page.error + next.error)
              throw new Error(`pages ${page.index} and ${next.index} in no clear order`);
          }
          const keysOf = (g: number): SeenKey[] => kept.flatMap(({ keys }) => keys[g]);
          /** The certificate of a query head, and how far rounding may lead from it. */
          const certify = (g: number): [number, number] => {
            if (order.length === 0) return [0, 0];
            const keys = keysOf(g);
            if (keys.length === 0) return [1, 0];
            const sums = attentionSums(keys, valueDim, arithmetic);
            const rest = order.reduce(
              (sum, page) => sum + page.keys[g].length * Math.exp(page.bounds[g] - sums.max),
              0,
            );
            const far = Math.max(...order.map((page) => Math.abs(page.bounds[g]) + Math.abs(sums.max)));
            const relative =
              Math.max(...order.map((page) => page.error)) +
              sums.maxError +
              sums.sumError +
              (order.length + 16) * unit +
              3 * elementary +
              4 * unit * far;
            return [rest / (rest + sums.sum), relative];
          };
          for (let left = budget === -1 ? Infinity : budget; left > 0 && order.length > 0; left--) {
            const all = heads.map((_, g) => certify(g));
            for (const [value, relative] of all) {
              if (epsilon > 0 && Math.abs(value - epsilon) <= 2 * relative * value) throw new Error('no clear end');
            }
            if (epsilon > 0 && all.every(([value]) => value <= epsilon)) break;
            kept.push(order.shift() as Page);
          }
          numPages.push(kept.length);
          numPairs.push(kept.reduce((sum, { keys }) => sum + keys[0].length, 0));
          const norm = Math.max(0, ...order.map(({ summary }) => norms[summary]));
          for (const [g] of heads.entries()) {
            const keys = keysOf(g);
            const [value, relative] = certify(g);
            const output = attended([keys], valueDim, arithmetic);
            const length = Math.hypot(...output.values);
            const lengthError = Math.hypot(...output.bounds) + (valueDim + 4) * unit * length;
            attendedKeys.push(keys);
            certificates.push([value, value * relative]);
            errorBounds.push([
              value * (norm + length),
              value * (relative + 4 * unit) * (norm + length) + value * lengthError,
            ]);
          }
        }
      }
      return {
        inputs: {
          ...problem.inputs,
          boxCounts: boxes.boxCounts,
          keyMin: floats(boxes.shape, low),
          keyMax: floats(boxes.shape, high),
          valueNorms: floats(boxes.shape.slice(0, 3), norms),
        },
        expected: {
          y: attended(attendedKeys, valueDim, arithmetic),
          certificate: close(certificates.length, (index) => certificates[index]),
          errorBound: close(errorBounds.length, (index) => errorBounds[index]),
          ...(mass ? { mass: masses(problem, setup, attendedKeys, arithmetic) } : {}),
          pages: integers(numPages),
          pairs: integers(numPairs),
        },
      };

      /** Boxes around nothing in particular: the op takes them as they are. */
      function randomBoxes() {
        const { meanCounts: boxCounts, keyMeans } = randomMeans(problem, setup, numParts, rng);
        const { shape } = keyMeans;
        const numRows = shape[0] * shape[1] * shape[2];
        const middle = Float32Array.from({ length: numRows * headDim }, () => rng.nextGaussian());
        const radius = Float32Array.from({ length: numRows * headDim }, () => 0.5 * rng.nextFloat());
        return {
          ...{ shape, boxCounts },
          low: Float64Array.from(middle, (m, i) => Math.fround(m - radius[i])),
          high: Float64Array.from(middle, (m, i) => Math.fround(m + radius[i])),
          norms: Float64Array.from({ length: numRows }, () => Math.fround(1 + rng.nextFloat())),
        };
      }
    },
  };
}

const shuffled = { ...severalSequences, isShuffled: true };
const long = { contextLengths: [150], queries: chunkOf(150, 147) };

export const pageTopKAttentionCases: readonly KernelCase[] = [
  ...sparseSetups.map((setup) => pageCase(setup, { budget: 2, sinks: 2, local: 5 })),
  ...[0, 1, 4, -1].map((budget) => pageCase(sparseSetup('any order', shuffled), { budget })),
  ...[0.01, 0.1, 0.3, 0.6, 0.95].map((epsilon) =>
    pageCase(sparseSetup('long', long), { epsilon, local: 20, sinks: 4 }),
  ),
  ...[0.05, 0.5].map((epsilon) => pageCase(sparseSetup('long', long), { epsilon, budget: 3, local: 20 })),
  // more heads on one KV head than a kernel takes at once
  ...[0, 0.3].map((epsilon) =>
    pageCase(sparseSetup('72 heads on one', { ...long, numHeads: 72, numKvHeads: 1 }), {
      epsilon,
      local: 20,
      budget: 5,
    }),
  ),
  ...massSetups.map((setup) => pageCase(setup, { budget: 2, sinks: 2, local: 5, mass: true })),
  pageCase(sparseSetup('long', long), { epsilon: 0.3, local: 20, sinks: 4, mass: true }),
  pageCase(sparseSetup('72 heads on one', { ...long, numHeads: 72, numKvHeads: 1 }), {
    ...{ epsilon: 0.3, local: 20, budget: 5, mass: true },
  }),
  ...[2, 4, 8].map((numParts) => pageCase(sparseSetup('long', long), { numParts, budget: 9, sinks: 1, local: 9 })),
  pageCase(sparseSetup('capped', { ...long, softCap: 4 }), { budget: 5 }),
  pageCase(sparseSetup('model window of 60', { ...long, window: 60 }), { budget: 3, sinks: 50, local: 4 }),
];
