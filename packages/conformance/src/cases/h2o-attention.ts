import type { Rng } from '@winnow/tensor';
import type { Arithmetic } from '../arithmetic.js';
import type { KernelCase, KernelData } from '../kernel-case.js';
import {
  attentionAttributes,
  createAttention,
  type AttentionProblem,
  type AttentionSetup,
  type SeenKey,
} from '../setups/attention-setup.js';
import { attended, clearlyLargest, integers, masses, rowsOf } from '../setups/sparse-setup.js';
import { chunkOf, massSetups, sparseSetup, sparseSetups } from '../setups/sparse-setups.js';
import { close, floats, ints, numbersOf, randomTensor } from '../values.js';

interface Budgets {
  readonly chunk: number;
  readonly local: number;
  readonly heavy: number;
  readonly sinks?: number;
  /** State rows that sequences start from and write; default: fresh, and the index of the sequence. */
  readonly from?: readonly number[];
  readonly to?: readonly number[];
  /** Positions that each sequence's state has seen; default: all before the step. */
  readonly seen?: readonly number[];
  readonly mass?: boolean;
}

interface Score {
  value: number;
  error: number;
}

const numRows = 4;

/** Softmax weights of some keys, with bounds: errors of two logits, of exp, of the sum, and of the quotient. */
function addWeights(scores: Map<number, Score>, keys: readonly SeenKey[], { unit, elementary }: Arithmetic): void {
  if (keys.length === 0) return;
  const max = Math.max(...keys.map(({ logit }) => logit));
  const largestError = Math.max(...keys.map(({ logitError }) => logitError));
  const sum = keys.reduce((total, { logit }) => total + Math.exp(logit - max), 0);
  for (const { position, logit } of keys) {
    const weight = Math.exp(logit - max) / sum;
    const score = scores.get(position) as Score;
    const relative = 2 * largestError + (keys.length + 16) * unit + 4 * elementary + 2 * unit * (max - logit);
    score.error += weight * relative + unit * (score.value + weight);
    score.value += weight;
  }
}

function h2oCase(setup: AttentionSetup, budgets: Budgets): KernelCase {
  const { chunk, local, heavy, sinks = 0, mass = false, from = freshRows(setup) } = budgets;
  return {
    op: 'h2o-attention',
    name: `${setup.name}, chunk ${chunk}, local ${local}, heavy ${heavy}, sinks ${sinks}, from ${from.join(' ')}${mass ? ', mass' : ''}`,
    dtypes: { keys: setup.keyDType, values: setup.valueDType },
    attributes: { ...attentionAttributes(setup), chunk, local, heavy, sinks, mass },
    create: (rng, arithmetic) => createData(setup, budgets, rng, arithmetic),
  };
}

function freshRows({ contextLengths }: AttentionSetup): readonly number[] {
  return contextLengths.map(() => -1);
}

function createData(setup: AttentionSetup, budgets: Budgets, rng: Rng, arithmetic: Arithmetic): KernelData {
  const { numHeads, numKvHeads, valueDim, queries, contextLengths } = setup;
  const { from = freshRows(setup), to = contextLengths.map((_, sequence) => sequence), mass = false } = budgets;
  const problem = createAttention(setup, rng, arithmetic);
  const before = randomStates(setup, budgets, rng);
  const first = contextLengths.map((_, sequence) => queries.find((query) => query[0] === sequence)?.[1] ?? 0);
  const { seen = first } = budgets;
  for (const [sequence, row] of from.entries()) if (row >= 0) plant(before, setup, budgets, rng, seen[sequence], row);
  const steps = new Steps(problem, setup, budgets, before, arithmetic);
  for (const sequence of contextLengths.keys()) {
    const tokens = queries.flatMap((query, index) => (query[0] === sequence ? [index] : []));
    if (tokens.length === 0) continue;
    for (let kvHead = 0; kvHead < numKvHeads; kvHead++) {
      steps.advance(from[sequence] * numKvHeads + kvHead, to[sequence] * numKvHeads + kvHead, kvHead, tokens);
    }
  }
  const { rows, after, scoreErrors, sumErrors } = steps;
  const groups = queries.flatMap((_, query) =>
    Array.from({ length: numKvHeads }, (_unused, k) => query * numHeads + (k * numHeads) / numKvHeads),
  );
  return {
    inputs: { ...problem.inputs, stateFrom: ints([from.length], from), stateTo: ints([to.length], to) },
    updated: tensorsOf(before, setup, budgets),
    expected: {
      y: attended(rows, valueDim, arithmetic),
      ...(mass ? { mass: masses(problem, setup, rows, arithmetic) } : {}),
      memory: { kind: 'bytes', bytes: new Uint8Array(after.memories.buffer) },
      memoryScores: close(after.scores.length, (index) => [after.scores[index], scoreErrors[index]]),
      chunkScores: close(after.sums.length, (index) => [after.sums[index], sumErrors[index]]),
      progress: { kind: 'bytes', bytes: new Uint8Array(after.progresses.buffer) },
      pairs: integers(groups.map((row) => rows[row].length)),
    },
  };
}

/** The states of all rows and KV heads, as the op's tensors hold them. */
interface States {
  readonly memories: Int32Array;
  readonly scores: Float64Array;
  readonly sums: Float64Array;
  readonly progresses: Int32Array;
}

function capacityOf({ sinks = 0, local, heavy }: Budgets): number {
  return sinks + local + heavy;
}

function randomStates({ numKvHeads }: AttentionSetup, budgets: Budgets, rng: Rng): States {
  const numEntries = numRows * numKvHeads * capacityOf(budgets);
  return {
    memories: new Int32Array(numEntries).fill(-9),
    scores: numbersOf(randomTensor(rng, 'f32', [numEntries])),
    sums: numbersOf(randomTensor(rng, 'f32', [numRows * numKvHeads * budgets.chunk])),
    progresses: new Int32Array(numRows * numKvHeads * 2).fill(-9),
  };
}

function tensorsOf(states: States, { numKvHeads }: AttentionSetup, budgets: Budgets) {
  const capacity = capacityOf(budgets);
  return {
    memory: ints([numRows, numKvHeads, capacity], states.memories),
    memoryScores: floats([numRows, numKvHeads, capacity], states.scores),
    chunkScores: floats([numRows, numKvHeads, budgets.chunk], states.sums),
    progress: ints([numRows, numKvHeads, 2], states.progresses),
  };
}

/** A state that earlier steps could have produced. */
function plant(states: States, setup: AttentionSetup, budgets: Budgets, rng: Rng, next: number, row: number): void {
  const { chunk } = budgets;
  const capacity = capacityOf(budgets);
  const numOld = Math.floor(next / chunk) * chunk;
  for (let kvHead = 0; kvHead < setup.numKvHeads; kvHead++) {
    const at = row * setup.numKvHeads + kvHead;
    const count = Math.min(capacity, numOld);
    const positions = Array.from({ length: numOld }, (_, j) => j);
    while (positions.length > count) positions.splice(rng.nextInt(positions.length), 1);
    states.progresses.set([next, count], at * 2);
    states.memories.fill(-1, at * capacity, (at + 1) * capacity).set(positions, at * capacity);
    for (let e = 0; e < capacity; e++)
      states.scores[at * capacity + e] = e < count ? Math.fround(3 * rng.nextFloat()) : 0;
    for (let i = 0; i < chunk; i++)
      states.sums[at * chunk + i] = i < next - numOld ? Math.fround(2 * rng.nextFloat()) : 0;
  }
}

/**
 * The steps of all sequences: keys of every (query, head) pair, and the states afterwards with bounds of their errors.
 */
class Steps {
  readonly rows: SeenKey[][];
  readonly after: States;
  readonly scoreErrors: Float64Array;
  readonly sumErrors: Float64Array;
  readonly #problem: AttentionProblem;
  readonly #setup: AttentionSetup;
  readonly #budgets: Budgets;
  readonly #before: States;
  readonly #arithmetic: Arithmetic;
  /** Scores of the memory and of the current chunk, by position. */
  readonly #kept = new Map<number, Score>();
  readonly #current = new Map<number, Score>();

  constructor(
    problem: AttentionProblem,
    setup: AttentionSetup,
    budgets: Budgets,
    before: States,
    arithmetic: Arithmetic,
  ) {
    this.#problem = problem;
    this.#setup = setup;
    this.#budgets = budgets;
    this.#before = before;
    this.#arithmetic = arithmetic;
    const { memories, scores, sums, progresses } = before;
    this.rows = rowsOf(setup).map(() => []);
    this.after = {
      ...{ memories: memories.slice(), scores: scores.slice() },
      ...{ sums: sums.slice(), progresses: progresses.slice() },
    };
    this.scoreErrors = new Float64Array(scores.length);
    this.sumErrors = new Float64Array(sums.length);
  }

  /**
   * Chunk by chunk: all queries of the step in it, then the resulting memory.
   * @param source the state to start from, negative for a fresh one; `target` the state to write
   */
  advance(source: number, target: number, kvHead: number, tokens: readonly number[]): void {
    const { chunk } = this.#budgets;
    const { queries } = this.#setup;
    const firstChunk = this.#start(source, queries[tokens[0]][1]);
    const end = queries[tokens[tokens.length - 1]][1] + 1;
    for (let index = firstChunk; index * chunk < end; index++) {
      if (index > firstChunk) this.#open(index);
      for (const query of tokens) {
        if (Math.floor(queries[query][1] / chunk) === index) this.#attend(query, kvHead, index);
      }
      if ((index + 1) * chunk > end) break;
      this.#close(index);
    }
    this.#leave(target, end);
  }

  /** Takes the state of a row, unless the sequence is fresh; returns the chunk to continue with. */
  #start(source: number, position: number): number {
    const { chunk } = this.#budgets;
    const { memories, scores, sums, progresses } = this.#before;
    const capacity = capacityOf(this.#budgets);
    this.#kept.clear();
    let next = 0;
    if (source >= 0 && position !== 0) {
      next = progresses[source * 2];
      for (let e = 0; e < progresses[source * 2 + 1]; e++) {
        this.#kept.set(memories[source * capacity + e], { value: scores[source * capacity + e], error: 0 });
      }
    }
    const firstChunk = Math.floor(next / chunk);
    this.#open(firstChunk);
    if (next === 0) return firstChunk;
    for (const [j, score] of this.#current) score.value = sums[source * chunk + (j - firstChunk * chunk)];
    return firstChunk;
  }

  #open(index: number): void {
    const { chunk } = this.#budgets;
    this.#current.clear();
    for (let j = index * chunk; j < (index + 1) * chunk; j++) this.#current.set(j, { value: 0, error: 0 });
  }

  #attend(query: number, kvHead: number, index: number): void {
    const { numHeads, numKvHeads } = this.#setup;
    const groupSize = numHeads / numKvHeads;
    for (let head = kvHead * groupSize; head < (kvHead + 1) * groupSize; head++) {
      const keys = this.#problem.seen(query, head);
      const own = keys.filter(({ position }) => position >= index * this.#budgets.chunk);
      const old = keys.filter(({ position }) => this.#kept.has(position));
      addWeights(this.#current, own, this.#arithmetic);
      addWeights(this.#kept, old, this.#arithmetic);
      this.rows[query * numHeads + head] = [...own, ...old];
    }
  }

  /** The memory after a whole chunk: sinks, the last positions, and the largest scores of the rest. */
  #close(index: number): void {
    const { chunk, local, heavy, sinks = 0 } = this.#budgets;
    const candidates = [...this.#kept, ...this.#current].sort((a, b) => a[0] - b[0]);
    const forced = (j: number): boolean => j < sinks || j >= (index + 1) * chunk - local;
    const rest = candidates.filter(([j]) => !forced(j));
    const values = rest.map(([, { value }]) => value);
    const errors = rest.map(([, { error }]) => error);
    const best = clearlyLargest(values, heavy, errors).map((i) => rest[i][0]);
    this.#kept.clear();
    for (const [j, score] of candidates) if (forced(j) || best.includes(j)) this.#kept.set(j, score);
    this.#open(index + 1);
  }

  #leave(target: number, end: number): void {
    const { chunk } = this.#budgets;
    const { memories, scores, sums, progresses } = this.after;
    const capacity = capacityOf(this.#budgets);
    const { unit } = this.#arithmetic;
    progresses.set([end, this.#kept.size], target * 2);
    memories.fill(-1, target * capacity, (target + 1) * capacity).set([...this.#kept.keys()], target * capacity);
    scores.fill(0, target * capacity, (target + 1) * capacity);
    for (const [e, { value, error }] of [...this.#kept.values()].entries()) {
      scores[target * capacity + e] = value;
      this.scoreErrors[target * capacity + e] = error + unit * value;
    }
    for (const [i, { value, error }] of [...this.#current.values()].entries()) {
      sums[target * chunk + i] = value;
      this.sumErrors[target * chunk + i] = error + unit * value;
    }
  }
}

const usual = { chunk: 8, local: 2, heavy: 3 };
const prompt = (length: number, begin = 0) => ({ contextLengths: [length], queries: chunkOf(length, begin) });

export const h2oAttentionCases: readonly KernelCase[] = [
  ...[1, 7, 8, 9, 16, 23, 40].map((length) => h2oCase(sparseSetup(`prompt of ${length}`, prompt(length)), usual)),
  ...[3, 8, 13, 16, 17, 32].map((begin) =>
    h2oCase(sparseSetup(`positions ${begin} to 37`, prompt(37, begin)), { ...usual, from: [2], to: [2] }),
  ),
  h2oCase(sparseSetup('a snapshot', prompt(37, 20)), { ...usual, from: [3], to: [1] }),
  h2oCase(sparseSetup('empty slots', { ...prompt(37, 20), hasGaps: true }), { ...usual, from: [3], mass: true }),
  h2oCase(sparseSetup('a prompt in a used row', prompt(20)), { ...usual, from: [1], to: [1], seen: [13] }),
  ...[5, 12, 16].map((seen) =>
    h2oCase(sparseSetup(`positions 34 to 45, ${seen} seen`, prompt(45, 34)), { ...usual, from: [0], seen: [seen] }),
  ),
  ...sparseSetups
    .filter(({ name }) => /heads|cache|cap of|model window|keys,|blocks/.test(name))
    .map((setup) =>
      h2oCase(
        { ...setup, contextLengths: [30, 0, 21], queries: [...chunkOf(30, 4), ...chunkOf(21, 18, 2)] },
        {
          ...usual,
          ...{ from: [3, -1, 0], to: [2, 1, 0], seen: [4, 0, 18] },
        },
      ),
    ),
  ...massSetups
    .filter(({ isShuffled, contextLengths }) => !isShuffled && contextLengths.length === 3)
    .map((setup) =>
      h2oCase(
        { ...setup, contextLengths: [30, 0, 21], queries: [...chunkOf(30, 4), ...chunkOf(21, 18, 2)] },
        { ...usual, ...{ from: [3, -1, 0], to: [2, 1, 0], seen: [4, 0, 18], mass: true } },
      ),
    ),
  h2oCase(sparseSetup('prompt of 50', { ...prompt(50), window: 11 }), { ...usual, sinks: 2, mass: true }),
  ...[
    { chunk: 8, local: 0, heavy: 4 },
    { chunk: 8, local: 4, heavy: 0 },
    { chunk: 8, local: 12, heavy: 2 },
    { chunk: 8, local: 2, heavy: 2, sinks: 3 },
    { chunk: 8, local: 2, heavy: 2, sinks: 11 },
    { chunk: 8, local: 8, heavy: 100 },
    { chunk: 1, local: 1, heavy: 3 },
    { chunk: 100, local: 5, heavy: 5 },
  ].map((budgets) => h2oCase(sparseSetup('prompt of 50', prompt(50)), budgets)),
  h2oCase(sparseSetup('prompt of 150', { ...prompt(150), numHeads: 2, numKvHeads: 1 }), {
    chunk: 70,
    local: 9,
    heavy: 14,
  }),
];
