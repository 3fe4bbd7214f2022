import type { Rng } from '@winnow/tensor';
import type { Arithmetic } from '../arithmetic.js';
import type { KernelCase, KernelData } from '../kernel-case.js';
import {
  attentionAttributes,
  attentionSums,
  createAttention,
  type AttentionProblem,
  type AttentionSetup,
  type SeenKey,
} from '../setups/attention-setup.js';
import { boundOf, randomBoxes, type Boxes } from '../setups/page-boxes.js';
import { attended, inputNumbers, integers, masses, rowOf, summaryIndex } from '../setups/sparse-setup.js';
import {
  chunkOf,
  massSetups,
  severalSequences,
  sinkSetups,
  sparseSetup,
  sparseSetups,
} from '../setups/sparse-setups.js';
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
  /** Visible keys of each query head of the group. */
  readonly keys: readonly SeenKey[][];
  /** Upper bound for each query head, and its error. */
  readonly bounds: readonly number[];
  readonly error: number;
  readonly isExact: boolean;
}

/** The results of one query head. */
interface HeadResult {
  readonly keys: readonly SeenKey[];
  /** Value and error. */
  readonly certificate: readonly [number, number];
  readonly errorBound: readonly [number, number];
}

function pageCase(setup: AttentionSetup, sparsity: Sparsity): KernelCase {
  const { budget = -1, epsilon = 0, sinks = 0, local = 1, numParts = 1, mass = false } = sparsity;
  return {
    op: 'page-topk-attention',
    name: `${setup.name}, budget ${budget}, epsilon ${epsilon}, sinks ${sinks}, local ${local}, ${numParts} parts${mass ? ', mass' : ''}`,
    dtypes: { keys: setup.keyDType, values: setup.valueDType },
    attributes: { ...attentionAttributes(setup), budget, epsilon, sinks, local, mass },
    create: (rng, arithmetic) => createData(setup, sparsity, rng, arithmetic),
  };
}

function createData(setup: AttentionSetup, sparsity: Sparsity, rng: Rng, arithmetic: Arithmetic): KernelData {
  const { numHeads, numKvHeads, valueDim, queries } = setup;
  const problem = createAttention(setup, rng, arithmetic);
  const boxes = randomBoxes(problem, setup, sparsity.numParts ?? 1, rng);
  const heads: HeadResult[] = [];
  const [numPages, numPairs]: [number[], number[]] = [[], []];
  for (const query of queries.keys()) {
    for (let kvHead = 0; kvHead < numKvHeads; kvHead++) {
      const group = new HeadGroup({ problem, setup, sparsity, boxes, arithmetic }, query, kvHead);
      group.visitPages();
      numPages.push(group.kept.length);
      numPairs.push(group.kept.reduce((sum, { keys }) => sum + keys[0].length, 0));
      for (let g = 0; g < numHeads / numKvHeads; g++) heads.push(group.resultOf(g));
    }
  }
  const attendedKeys = heads.map(({ keys }) => keys);
  return {
    inputs: {
      ...problem.inputs,
      boxCounts: boxes.boxCounts,
      keyMin: floats(boxes.shape, boxes.low),
      keyMax: floats(boxes.shape, boxes.high),
      valueNorms: floats(boxes.shape.slice(0, 3), boxes.norms),
    },
    expected: {
      y: attended(attendedKeys, valueDim, arithmetic),
      certificate: close(heads.length, (index) => heads[index].certificate),
      errorBound: close(heads.length, (index) => heads[index].errorBound),
      ...(sparsity.mass === true ? { mass: masses(problem, setup, attendedKeys, arithmetic) } : {}),
      pages: integers(numPages),
      pairs: integers(numPairs),
    },
  };
}

interface Truth {
  readonly problem: AttentionProblem;
  readonly setup: AttentionSetup;
  readonly sparsity: Sparsity;
  readonly boxes: Boxes;
  readonly arithmetic: Arithmetic;
}

/** The query heads of one KV head and one token: the selected pages, and the others, best first. */
class HeadGroup {
  readonly kept: Page[];
  readonly #left: Page[];
  readonly #heads: readonly number[];
  readonly #truth: Truth;

  constructor(truth: Truth, query: number, kvHead: number) {
    const { numHeads, numKvHeads } = truth.setup;
    const groupSize = numHeads / numKvHeads;
    this.#truth = truth;
    this.#heads = Array.from({ length: groupSize }, (_, g) => kvHead * groupSize + g);
    const pages = this.#pagesOf(query, kvHead);
    this.kept = pages.filter(({ isExact }) => isExact);
    this.#left = pages
      .filter(({ isExact }) => !isExact)
      .sort((a, b) => Math.max(...b.bounds) - Math.max(...a.bounds) || a.index - b.index);
  }

  /** Selects pages in order until the budget or all certificates end it. */
  visitPages(): void {
    const { budget = -1, epsilon = 0 } = this.#truth.sparsity;
    const limit = budget === -1 ? Infinity : budget;
    this.#checkOrder(limit);
    for (let left = limit; left > 0 && this.#left.length > 0; left--) {
      const all = this.#heads.map((_, g) => this.#certify(g));
      for (const [value, relative] of all) {
        if (epsilon > 0 && Math.abs(value - epsilon) <= 2 * relative * value) throw new Error('no clear end');
      }
      if (epsilon > 0 && all.every(([value]) => value <= epsilon)) break;
      this.kept.push(this.#left.shift() as Page);
    }
  }

  resultOf(g: number): HeadResult {
    const { setup, boxes, arithmetic } = this.#truth;
    const { unit } = arithmetic;
    const norm = Math.max(0, ...this.#left.map(({ summary }) => boxes.norms[summary]));
    const keys = this.#keysOf(g);
    const [value, relative] = this.#certify(g);
    const output = attended([keys], setup.valueDim, arithmetic);
    const length = Math.hypot(...output.values);
    const lengthError = Math.hypot(...output.bounds) + (setup.valueDim + 4) * unit * length;
    const error = value * (relative + 4 * unit) * (norm + length) + value * lengthError;
    return { keys, certificate: [value, value * relative], errorBound: [value * (norm + length), error] };
  }

  #pagesOf(query: number, kvHead: number): Page[] {
    const { problem, setup, sparsity, boxes } = this.#truth;
    const { sinks = 0, local = 1, numParts = 1 } = sparsity;
    const [sequence, position] = setup.queries[query];
    const pageSize = setup.blockSize / numParts;
    const counts = integersOf(boxes.boxCounts);
    const seen = this.#heads.map((head) => problem.seen(query, head));
    const pages: Page[] = [];
    for (let index = 0; index * pageSize < setup.contextLengths[sequence]; index++) {
      const summary = summaryIndex(problem, numParts, sequence, index, kvHead);
      const keys = seen.map((row) => row.filter(({ slot }) => Math.floor(slot / pageSize) === index));
      if (keys[0].length === 0) continue;
      const isNear = keys[0].some((key) => key.position < sinks || position - key.position < local);
      const isExact = isNear || counts[summary] !== pageSize;
      pages.push({ index, summary, keys, ...this.#boundsOf(query, summary), isExact });
    }
    return pages;
  }

  #boundsOf(query: number, summary: number): Pick<Page, 'bounds' | 'error'> {
    const { problem, setup } = this.#truth;
    const { numHeads, headDim } = setup;
    const qs = inputNumbers(problem, 'q');
    const all = this.#heads.map((head) =>
      boundOf({ ...this.#truth, q: rowOf(qs, query * numHeads + head, headDim) }, summary),
    );
    return { bounds: all.map(({ bound }) => bound), error: Math.max(...all.map(({ error }) => error)) };
  }

  /** @throws when rounding could change the order of pages of which the budget allows some */
  #checkOrder(limit: number): void {
    for (const [i, page] of this.#left.entries()) {
      const next = this.#left[i + 1];
      if (next === undefined || i + 1 > limit) break;
      const gap = Math.max(...page.bounds) - Math.max(...next.bounds);
      if (gap <= page.error + next.error) throw new Error(`pages ${page.index} and ${next.index} in no clear order`);
    }
  }

  #keysOf(g: number): SeenKey[] {
    return [...this.#truth.problem.sink(this.#heads[g]), ...this.kept.flatMap(({ keys }) => keys[g])];
  }

  /** The certificate of a query head and its error bound. */
  #certify(g: number): [number, number] {
    const left = this.#left;
    if (left.length === 0) return [0, 0];
    const keys = this.#keysOf(g);
    if (keys.length === 0) return [1, 0];
    const { setup, arithmetic } = this.#truth;
    const sums = attentionSums(keys, setup.valueDim, arithmetic);
    const rest = left.reduce((sum, page) => sum + page.keys[g].length * Math.exp(page.bounds[g] - sums.max), 0);
    const far = Math.max(...left.map((page) => Math.abs(page.bounds[g]) + Math.abs(sums.max)));
    const relative =
      Math.max(...left.map((page) => page.error)) +
      sums.maxError +
      sums.sumError +
      (left.length + 16) * arithmetic.unit +
      3 * arithmetic.elementary +
      4 * arithmetic.unit * far;
    return [rest / (rest + sums.sum), relative];
  }
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
  // the last positions are not in the cache, so that no page is always attended to: the certificate is 1 until one is
  ...[0, 0.5].map((epsilon) =>
    pageCase(sparseSetup('whole pages', { contextLengths: [64], queries: [[0, 80]] }), {
      epsilon,
      budget: epsilon === 0 ? 0 : -1,
    }),
  ),
  // more query heads per KV head than a kernel processes at once
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
  ...sinkSetups.map((setup) => pageCase(setup, { budget: 2, sinks: 2, local: 5, mass: setup.sinkSpread === 1 })),
  ...[0.05, 0.4].map((epsilon) =>
    pageCase(sparseSetup('long, learned sinks', { ...long, sinkSpread: 2 }), { epsilon, local: 20 }),
  ),
  pageCase(sparseSetup('model window of 60', { ...long, window: 60 }), { budget: 3, sinks: 50, local: 4 }),
];
