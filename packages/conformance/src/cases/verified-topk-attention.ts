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
import { chunkOf, massSetups, severalSequences, sparseSetup, sparseSetups } from '../setups/sparse-setups.js';
import { close, floats, integersOf } from '../values.js';

interface Sparsity {
  readonly budget?: number;
  readonly epsilon?: number;
  readonly sinks?: number;
  readonly local?: number;
  readonly numParts?: number;
  readonly sample?: number;
  readonly seed?: number;
  readonly mass?: boolean;
}

const quantile = 1.96;

function verifiedCase(setup: AttentionSetup, sparsity: Sparsity): KernelCase {
  const {
    budget = 1,
    epsilon = 0.2,
    sinks = 0,
    local = 1,
    numParts = 1,
    sample = 6,
    seed = 0,
    mass = false,
  } = sparsity;
  const parameters = [
    ...[`epsilon ${epsilon}`, `budget ${budget}`, `sample ${sample}`, `sinks ${sinks}`, `local ${local}`],
    ...[`${numParts} parts`, `seed ${seed}`, ...(mass ? ['mass'] : [])],
  ];
  return {
    op: 'verified-topk-attention',
    name: `${setup.name}, ${parameters.join(', ')}`,
    dtypes: { keys: setup.keyDType, values: setup.valueDType },
    attributes: {
      ...attentionAttributes(setup),
      ...{ budget, epsilon, sinks, local, quantile, sample, seed, mass },
    },
    create: (rng, arithmetic) =>
      createData(setup, { budget, epsilon, sinks, local, numParts, sample, seed, mass }, rng, arithmetic),
  };
}

function createData(setup: AttentionSetup, sparsity: Required<Sparsity>, rng: Rng, arithmetic: Arithmetic): KernelData {
  const { numHeads, numKvHeads, valueDim, queries } = setup;
  const problem = createAttention(setup, rng, arithmetic);
  const boxes = randomBoxes(problem, setup, sparsity.numParts, rng);
  const rows: SeenKey[][] = [];
  const errors: [number, number][] = [];
  const pairs: number[] = [];
  for (const query of queries.keys()) {
    for (let kvHead = 0; kvHead < numKvHeads; kvHead++) {
      const group = new SampledGroup({ problem, setup, sparsity, boxes, arithmetic }, query, kvHead);
      group.drawUntilGoodEnough();
      pairs.push(group.drawn.length);
      for (let g = 0; g < numHeads / numKvHeads; g++) {
        rows.push(group.weighted(g));
        errors.push(group.errorOf(g));
      }
    }
  }
  return {
    inputs: {
      ...problem.inputs,
      boxCounts: boxes.boxCounts,
      keyMin: floats(boxes.shape, boxes.low),
      keyMax: floats(boxes.shape, boxes.high),
    },
    expected: {
      y: attended(rows, valueDim, arithmetic),
      errorEstimate: close(errors.length, (index) => errors[index]),
      pairs: integers(pairs),
      ...(sparsity.mass ? { mass: masses(problem, setup, rows, arithmetic) } : {}),
    },
  };
}

/** A visible key of a KV head. */
interface Candidate {
  /** Of each query head of the group. */
  readonly seen: readonly SeenKey[];
  readonly page: number;
  /** Random bits as a number in [0, 1). */
  readonly random: number;
}

interface Truth {
  readonly problem: AttentionProblem;
  readonly setup: AttentionSetup;
  readonly sparsity: Required<Sparsity>;
  readonly boxes: Boxes;
  readonly arithmetic: Arithmetic;
}

/** The query heads of one KV head and one token, and the keys that are drawn for them. */
class SampledGroup {
  drawn: Candidate[] = [];
  readonly #truth: Truth;
  readonly #heads: readonly number[];
  readonly #candidates: readonly Candidate[];
  /** Exponents of the pages that need not be read. */
  readonly #exponents: ReadonlyMap<number, number>;
  #round = 0;
  #isComplete = false;

  constructor(truth: Truth, query: number, kvHead: number) {
    const { numHeads, numKvHeads, queries } = truth.setup;
    const groupSize = numHeads / numKvHeads;
    this.#truth = truth;
    this.#heads = Array.from({ length: groupSize }, (_, g) => kvHead * groupSize + g);
    const pageSize = truth.setup.blockSize / truth.sparsity.numParts;
    const seen = this.#heads.map((head) => truth.problem.seen(query, head));
    this.#candidates = seen[0].map(({ slot, position }, i) => ({
      seen: seen.map((keys) => keys[i]),
      page: Math.floor(slot / pageSize),
      random: randomOf(truth.sparsity.seed, queries[query][1], kvHead, position),
    }));
    this.#exponents = this.#exponentsOf(query, kvHead);
  }

  /** The keys of the sample with their weights as part of their logits. */
  weighted(g: number): SeenKey[] {
    const { unit } = this.#truth.arithmetic;
    return this.drawn.map((candidate) => {
      const { logit, logitError, ...key } = candidate.seen[g];
      const bias = -Math.log(this.#probability(candidate));
      const rounding = bias === 0 ? 0 : unit * (2 * Math.abs(bias) + Math.abs(logit) + logitError);
      return { ...key, logit: logit + bias, logitError: logitError + rounding };
    });
  }

  /** Draws larger samples until the estimated errors of all heads are small enough, or all keys are drawn. */
  drawUntilGoodEnough(): void {
    const { epsilon } = this.#truth.sparsity;
    const numRandom = this.#candidates.filter((candidate) => this.#probabilityAt(candidate, 0) < 1).length;
    this.#draw();
    if (numRandom === 0) return;
    while (!this.#isComplete) {
      const numDrawn = this.drawn.length - (this.#candidates.length - numRandom);
      if (numDrawn > 1 && this.#isWithin(epsilon)) return;
      this.#isComplete = 2 * numDrawn >= numRandom;
      this.#round += 1;
      this.#draw();
    }
  }

  /** @throws when rounding could change the answer */
  #isWithin(epsilon: number): boolean {
    const errors = this.#heads.map((_, g) => this.errorOf(g));
    for (const [value, bound] of errors) {
      if (Math.abs(value - epsilon) <= bound) throw new Error('no clear end');
    }
    return errors.every(([value]) => value <= epsilon);
  }

  /** The estimated relative error of a query head, and how far f32 arithmetic may be from it. */
  errorOf(g: number): [number, number] {
    const { setup, arithmetic } = this.#truth;
    const { unit, elementary } = arithmetic;
    const { valueDim } = setup;
    const keys = this.weighted(g);
    if (this.drawn.every((candidate) => this.#probability(candidate) === 1)) return [0, 0];
    const sums = attentionSums(keys, valueDim, arithmetic);
    const output = attended([keys], valueDim, arithmetic);
    const outputError = Math.hypot(...output.bounds);
    let variance = 0;
    let varianceError = 0;
    for (const [i, { logit, logitError, value }] of keys.entries()) {
      const share = 1 - this.#probability(this.drawn[i]);
      if (share === 0) continue;
      const weight = Math.exp(logit - sums.max) / sums.sum;
      const distance = value.reduce((sum, x, d) => sum + (x - output.values[d]) ** 2, 0);
      // a weight is a quotient of an exponential and a sum; a square doubles its relative error
      const weightError =
        logitError + sums.maxError + sums.sumError + 4 * elementary + 2 * unit * (sums.max - logit + 6);
      const distanceError = outputError * (2 * Math.sqrt(distance) + outputError) + (valueDim + 5) * unit * distance;
      variance += share * weight * weight * distance;
      varianceError += share * weight * weight * (distance * weightError * (2 + weightError) + 1.01 * distanceError);
    }
    varianceError += (keys.length + 8) * unit * variance;
    const norm = Math.hypot(...output.values);
    const normError = outputError + (valueDim + 4) * unit * norm;
    const error = (numerator: number, length: number): number => (quantile * Math.sqrt(numerator)) / length;
    const value = error(variance, norm);
    const highest = error(variance + varianceError, norm - normError);
    const lowest = error(Math.max(0, variance - varianceError), norm + normError);
    return [value, Math.max(highest - value, value - lowest) + 4 * unit * value];
  }

  #draw(): void {
    this.drawn = this.#candidates.filter((candidate) => candidate.random < this.#probability(candidate));
  }

  #probability(candidate: Candidate): number {
    return this.#isComplete ? 1 : this.#probabilityAt(candidate, this.#round);
  }

  #probabilityAt({ page }: Candidate, round: number): number {
    const exponent = this.#exponents.get(page);
    return exponent === undefined ? 1 : Math.min(1, 2 ** (round - exponent));
  }

  #exponentsOf(query: number, kvHead: number): Map<number, number> {
    const { sparsity } = this.#truth;
    const open = this.#openPages(query, kvHead).sort((a, b) => b.nearness - a.nearness || a.page - b.page);
    const last = open[sparsity.budget - 1];
    const next = open[sparsity.budget];
    // the best pages of two heads are an exact tie
    const error = last === undefined || next === undefined ? 0 : last.error + next.error;
    if (error > 0 && last.nearness - next.nearness <= error) {
      throw new Error(`pages ${last.page} and ${next.page} in no clear order`);
    }
    const rest = open.slice(sparsity.budget).map((page) => ({ ...page, exponent: clearExponent(page) }));
    const expected = rest.reduce((sum, { numKeys, exponent }) => sum + numKeys / 2 ** exponent, 0);
    // the expected sample is in [sample, 2 sample)
    const shift = rest.length === 0 ? 0 : Math.floor(Math.log2(expected / sparsity.sample));
    return new Map(rest.map(({ page, exponent }) => [page, exponent + shift]));
  }

  /** The pages that need not be read as a whole. */
  #openPages(query: number, kvHead: number): OpenPage[] {
    const { problem, setup, sparsity, boxes } = this.#truth;
    const { sinks, local, numParts } = sparsity;
    const [sequence, position] = setup.queries[query];
    const counts = integersOf(boxes.boxCounts);
    const byPage = Map.groupBy(this.#candidates, ({ page }) => page);
    const open: { page: number; numKeys: number; bounds: number[]; error: number }[] = [];
    for (const [page, keys] of byPage) {
      const summary = summaryIndex(problem, numParts, sequence, page, kvHead);
      const isNear = keys.some(({ seen: [key] }) => key.position < sinks || position - key.position < local);
      if (isNear || counts[summary] !== setup.blockSize / numParts) continue;
      const all = this.#heads.map((head) => {
        const q = rowOf(inputNumbers(problem, 'q'), query * setup.numHeads + head, setup.headDim);
        return boundOf({ ...this.#truth, q }, summary);
      });
      const error = Math.max(...all.map((bound) => bound.error));
      open.push({ page, numKeys: keys.length, bounds: all.map(({ bound }) => bound), error });
    }
    const tops = this.#heads.map((_, g) => open.reduce((top, { bounds }) => Math.max(top, bounds[g]), -Infinity));
    const topError = Math.max(0, ...open.map(({ error }) => error));
    return open.map(({ page, numKeys, bounds, error }) => {
      const nearness = Math.max(...bounds.map((bound, g) => bound - tops[g]));
      return { page, numKeys, nearness, error: nearness === 0 ? 0 : error + topError };
    });
  }
}

interface OpenPage {
  readonly page: number;
  readonly numKeys: number;
  /** The bound of the logits minus the largest one, of the head where that is largest, and its error. */
  readonly nearness: number;
  readonly error: number;
}

/** @throws when rounding could change the exponent */
function clearExponent({ page, nearness, error }: OpenPage): number {
  const exact = -nearness / (2 * Math.LN2);
  const slack = error / (2 * Math.LN2) + 2 ** -21 * exact;
  if (exact - slack > 20) return 20;
  if (exact > 0 && Math.floor(exact - slack) !== Math.floor(exact + slack)) {
    throw new Error(`page ${page} has no clear probability`);
  }
  return Math.floor(exact);
}

/** The random number of a key in [0, 1): 32 bits by MurmurHash3's finalizer, in integers of any size. */
function randomOf(seed: number, queryPosition: number, kvHead: number, keyPosition: number): number {
  const low = (x: bigint): bigint => BigInt.asUintN(32, x);
  const mix = (x: bigint): bigint => {
    x = low((x ^ (x >> 16n)) * 0x85ebca6bn);
    x = low((x ^ (x >> 13n)) * 0xc2b2ae35n);
    return x ^ (x >> 16n);
  };
  const stream = mix(low(mix(low(mix(low(BigInt(seed))) + BigInt(queryPosition))) + BigInt(kvHead)));
  return Number(mix(low(stream + BigInt(keyPosition) * 0x9e3779b9n))) / 2 ** 32;
}

const shuffled = { ...severalSequences, isShuffled: true };
const long = { contextLengths: [300], queries: chunkOf(300, 297) };
const manyHeads = { contextLengths: [150], queries: chunkOf(150, 149), numHeads: 72, numKvHeads: 1 };

export const verifiedTopKAttentionCases: readonly KernelCase[] = [
  ...sparseSetups.map((setup) => verifiedCase(setup, { sinks: 2, local: 5 })),
  ...[0, 1, 4].map((budget) => verifiedCase(sparseSetup('any order', shuffled), { budget })),
  ...[0.01, 0.1, 0.3, 0.6, 2].map((epsilon) =>
    verifiedCase(sparseSetup('long', long), { epsilon, local: 20, sinks: 4 }),
  ),
  ...[1, 20, 400].map((sample) => verifiedCase(sparseSetup('long', long), { epsilon: 0.6, sample })),
  ...[1, 2 ** 31 - 1].map((seed) => verifiedCase(sparseSetup('long', long), { epsilon: 0.6, seed })),
  // the last positions are not in the cache, so that no page is always read
  verifiedCase(sparseSetup('whole pages', { contextLengths: [64], queries: [[0, 80]] }), { budget: 0 }),
  // more query heads per KV head than a kernel processes at once
  verifiedCase(sparseSetup('72 heads on one', manyHeads), { epsilon: 0.8, local: 20, sample: 30 }),
  ...massSetups.map((setup) => verifiedCase(setup, { sinks: 2, local: 5, epsilon: 0.8, mass: true })),
  verifiedCase(sparseSetup('72 heads on one', manyHeads), { epsilon: 0.8, local: 20, sample: 30, mass: true }),
  ...[2, 4, 8].map((numParts) =>
    verifiedCase(sparseSetup('long', long), { numParts, epsilon: 0.5, sinks: 1, local: 9 }),
  ),
  verifiedCase(sparseSetup('capped', { ...long, softCap: 4 }), { epsilon: 0.5 }),
  verifiedCase(sparseSetup('model window of 160', { ...long, window: 160 }), { epsilon: 0.5, sinks: 150, local: 4 }),
];
