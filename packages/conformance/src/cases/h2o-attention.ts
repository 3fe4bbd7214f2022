import { attentionAttributes, createAttention, type AttentionSetup, type SeenKey } from '../attention-setup.js';
import type { Arithmetic } from '../arithmetic.js';
import type { KernelCase } from '../kernel-case.js';
import { attended, clearlyLargest, integers, masses, rowsOf } from '../sparse-setup.js';
import { chunkOf, massSetups, sparseSetup, sparseSetups } from '../sparse-setups.js';
import { close, floats, integersOf, ints, numbersOf, randomTensor } from '../values.js';

interface Budgets {
  readonly chunk: number;
  readonly local: number;
  readonly heavy: number;
  readonly sinks?: number;
  /** Rows of the states that sequences start from and leave; default: fresh, and its own number. */
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
  const { chunk, local, heavy, sinks = 0, mass = false } = budgets;
  const { numHeads, numKvHeads, valueDim, queries, contextLengths } = setup;
  const { from = contextLengths.map(() => -1), to = contextLengths.map((_, sequence) => sequence) } = budgets;
  const capacity = sinks + local + heavy;
  return {
    op: 'h2o-attention',
    name: `${setup.name}, chunk ${chunk}, local ${local}, heavy ${heavy}, sinks ${sinks}, from ${from.join(' ')}${mass ? ', mass' : ''}`,
    dtypes: { keys: setup.keyDType, values: setup.valueDType },
    attributes: { ...attentionAttributes(setup), chunk, local, heavy, sinks, mass },
    create(rng, arithmetic) {
      const problem = createAttention(setup, rng, arithmetic);
      const groupSize = numHeads / numKvHeads;
      const memory = ints([numRows, numKvHeads, capacity], new Array(numRows * numKvHeads * capacity).fill(-9));
      const memoryScores = randomTensor(rng, 'f32', [numRows, numKvHeads, capacity]);
      const chunkScores = randomTensor(rng, 'f32', [numRows, numKvHeads, chunk]);
      const progress = ints([numRows, numKvHeads, 2], new Array(numRows * numKvHeads * 2).fill(-9));
      const [memories, progresses] = [integersOf(memory), integersOf(progress)];
      const [scores, sums] = [numbersOf(memoryScores), numbersOf(chunkScores)];
      const first = contextLengths.map((_, sequence) => queries.find((query) => query[0] === sequence)?.[1] ?? 0);
      const { seen = first } = budgets;
      for (const [sequence, row] of from.entries()) if (row >= 0) plant(sequence, row);
      const before = {
        memory: ints(memory.shape, memories),
        memoryScores: floats(memoryScores.shape, scores),
        chunkScores: floats(chunkScores.shape, sums),
        progress: ints(progress.shape, progresses),
      };
      const scoreErrors = new Float64Array(scores.length);
      const sumErrors = new Float64Array(sums.length);
      const rows: SeenKey[][] = rowsOf(setup).map(() => []);
      const state = {
        memories: memories.slice(),
        progresses: progresses.slice(),
        scores: scores.slice(),
        sums: sums.slice(),
      };
      for (const sequence of contextLengths.keys()) {
        const tokens = queries.flatMap((query, index) => (query[0] === sequence ? [index] : []));
        if (tokens.length === 0) continue;
        for (let kvHead = 0; kvHead < numKvHeads; kvHead++) advance(sequence, kvHead, tokens);
      }
      return {
        inputs: {
          ...problem.inputs,
          stateFrom: ints([from.length], from),
          stateTo: ints([to.length], to),
        },
        updated: before,
        expected: {
          y: attended(rows, valueDim, arithmetic),
          ...(mass ? { mass: masses(problem, setup, rows, arithmetic) } : {}),
          memory: { kind: 'bytes', bytes: new Uint8Array(state.memories.buffer) },
          memoryScores: close(scores.length, (index) => [state.scores[index], scoreErrors[index]]),
          chunkScores: close(sums.length, (index) => [state.sums[index], sumErrors[index]]),
          progress: { kind: 'bytes', bytes: new Uint8Array(state.progresses.buffer) },
          pairs: integers(
            queries.flatMap((_, query) =>
              Array.from({ length: numKvHeads }, (_unused, k) => rows[query * numHeads + k * groupSize].length),
            ),
          ),
        },
      };

      /** A state as earlier steps could have left it. */
      function plant(sequence: number, row: number): void {
        const next = seen[sequence];
        const numOld = Math.floor(next / chunk) * chunk;
        for (let kvHead = 0; kvHead < numKvHeads; kvHead++) {
          const at = row * numKvHeads + kvHead;
          const count = Math.min(capacity, numOld);
          const positions = Array.from({ length: numOld }, (_, j) => j);
          while (positions.length > count) positions.splice(rng.nextInt(positions.length), 1);
          progresses.set([next, count], at * 2);
          memories.fill(-1, at * capacity, (at + 1) * capacity).set(positions, at * capacity);
          for (let e = 0; e < capacity; e++)
            scores[at * capacity + e] = e < count ? Math.fround(3 * rng.nextFloat()) : 0;
          for (let i = 0; i < chunk; i++)
            sums[at * chunk + i] = i < next - numOld ? Math.fround(2 * rng.nextFloat()) : 0;
        }
      }

      /** Chunk by chunk: all queries of the step in it, then the memory that it leaves. */
      function advance(sequence: number, kvHead: number, tokens: readonly number[]): void {
        const kept = new Map<number, Score>();
        const current = new Map<number, Score>();
        let next = 0;
        const row = from[sequence] * numKvHeads + kvHead;
        if (from[sequence] >= 0 && queries[tokens[0]][1] !== 0) {
          next = progresses[row * 2];
          for (let e = 0; e < progresses[row * 2 + 1]; e++) {
            kept.set(memories[row * capacity + e], { value: scores[row * capacity + e], error: 0 });
          }
        }
        const open = (index: number): void => {
          current.clear();
          for (let j = index * chunk; j < (index + 1) * chunk; j++) current.set(j, { value: 0, error: 0 });
        };
        const firstChunk = Math.floor(next / chunk);
        open(firstChunk);
        if (next > 0) {
          for (const [j, score] of current) score.value = sums[row * chunk + (j - firstChunk * chunk)];
        }
        const end = queries[tokens[tokens.length - 1]][1] + 1;
        for (let index = firstChunk; index * chunk < end; index++) {
          if (index > firstChunk) open(index);
          for (const query of tokens) {
            if (Math.floor(queries[query][1] / chunk) !== index) continue;
            for (let g = 0; g < groupSize; g++) {
              const head = kvHead * groupSize + g;
              const keys = problem.seen(query, head);
              const own = keys.filter(({ position }) => position >= index * chunk);
              const old = keys.filter(({ position }) => kept.has(position));
              addWeights(current, own, arithmetic);
              addWeights(kept, old, arithmetic);
              rows[query * numHeads + head] = [...own, ...old];
            }
          }
          if ((index + 1) * chunk > end) break;
          const candidates = [...kept, ...current].sort((a, b) => a[0] - b[0]);
          const forced = (j: number): boolean => j < sinks || j >= (index + 1) * chunk - local;
          const rest = candidates.filter(([j]) => !forced(j));
          const best = clearlyLargest(
            rest.map(([, { value }]) => value),
            heavy,
            rest.map(([, { error }]) => error),
          ).map((i) => rest[i][0]);
          kept.clear();
          for (const [j, score] of candidates) if (forced(j) || best.includes(j)) kept.set(j, score);
          open(index + 1);
        }
        const target = to[sequence] * numKvHeads + kvHead;
        state.progresses.set([end, kept.size], target * 2);
        state.memories.fill(-1, target * capacity, (target + 1) * capacity).set([...kept.keys()], target * capacity);
        state.scores.fill(0, target * capacity, (target + 1) * capacity);
        for (const [e, { value, error }] of [...kept.values()].entries()) {
          state.scores[target * capacity + e] = value;
          scoreErrors[target * capacity + e] = error + arithmetic.unit * value;
        }
        for (const [i, { value, error }] of [...current.values()].entries()) {
          state.sums[target * chunk + i] = value;
          sumErrors[target * chunk + i] = error + arithmetic.unit * value;
        }
      }
    },
  };
}

const usual = { chunk: 8, local: 2, heavy: 3 };
const prompt = (length: number, begin = 0) => ({ contextLengths: [length], queries: chunkOf(length, begin) });

export const h2oAttentionCases: readonly KernelCase[] = [
  ...[1, 7, 8, 9, 16, 23, 40].map((length) => h2oCase(sparseSetup(`prompt of ${length}`, prompt(length)), usual)),
  ...[3, 8, 13, 16, 17, 32].map((begin) =>
    h2oCase(sparseSetup(`positions ${begin} to 37`, prompt(37, begin)), { ...usual, from: [2], to: [2] }),
  ),
  h2oCase(sparseSetup('a snapshot', prompt(37, 20)), { ...usual, from: [3], to: [1] }),
  h2oCase(sparseSetup('a prompt in a used row', prompt(20)), { ...usual, from: [1], to: [1] }),
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
