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
import { attended, integers, masses, randomMeans, rowOf, rowsOf, summaryIndex } from '../setups/sparse-setup.js';
import { chunkOf, massSetups, severalSequences, sparseSetup, sparseSetups } from '../setups/sparse-setups.js';
import { integersOf, ints, numbersOf } from '../values.js';

interface Sparsity {
  readonly local: number;
  readonly logStride?: boolean;
  readonly landmarks?: 'off' | 'compat' | 'outside-window';
  readonly logCount?: boolean;
  readonly globals?: readonly number[];
  /** Summaries per cache block. */
  readonly numParts?: number;
  /** Logical slots of sequence 0 that are empty. */
  readonly holes?: readonly number[];
  readonly mass?: boolean;
}

/** The candidates in the order of the specification: window, globals, distances 1, 2, 4, ... */
function tokensOf(
  { causal }: AttentionSetup,
  { local, logStride = true, globals = [] }: Sparsity,
  i: number,
  n: number,
) {
  const tokens = new Set<number>();
  const last = causal ? i : Math.min(n - 1, i + local);
  for (let j = Math.max(0, i - local); j <= last; j++) tokens.add(j);
  for (const g of globals) if (g < n && (!causal || g <= i)) tokens.add(g);
  for (let s = 1; logStride && s < Math.max(n, i + 1); s *= 2) {
    if (i >= s) tokens.add(i - s);
    if (!causal && i + s < n) tokens.add(i + s);
  }
  return tokens;
}

function blocksOf({ causal }: AttentionSetup, { logStride = true }: Sparsity, i: number, n: number, size: number) {
  const blocks = new Set<number>();
  const numBlocks = causal ? Math.floor((i + 1) / size) : Math.ceil(n / size);
  const pivot = causal ? numBlocks - 1 : Math.floor(i / size);
  const add = (block: number): void => {
    if (block >= 0 && block < numBlocks && (causal || block !== pivot)) blocks.add(block);
  };
  for (const near of [pivot - 1, pivot, pivot + 1]) add(near);
  for (let s = 1; logStride && s <= Math.max(i, n); s *= 2) {
    add(pivot - s);
    if (!causal) add(pivot + s);
  }
  return blocks;
}

function subquadraticCase(setup: AttentionSetup, sparsity: Sparsity): KernelCase {
  const { local, logStride = true, landmarks = 'compat', logCount = false, globals = [0], mass = false } = sparsity;
  return {
    op: 'subquadratic-attention',
    name: `${setup.name}, ${nameOf(sparsity)}`,
    dtypes: { keys: setup.keyDType, values: setup.valueDType },
    attributes: {
      ...attentionAttributes(setup),
      ...{ local, logStride, landmarks, logCount, mass },
      ...Object.fromEntries(globals.map((g, index) => [`global${index}`, g])),
    },
    create: (rng, arithmetic) => createData(setup, sparsity, rng, arithmetic),
  };
}

function nameOf(sparsity: Sparsity): string {
  const { local, logStride = true, landmarks = 'compat', logCount = false } = sparsity;
  const { globals = [0], numParts = 1, holes = [], mass = false } = sparsity;
  const text = [`local ${local}`, `landmarks ${landmarks}`];
  if (!logStride) text.push('no stride');
  if (logCount) text.push('bias');
  if (globals.length !== 1) text.push(`globals ${globals.join('+')}`);
  if (numParts !== 1) text.push(`${numParts} parts`);
  if (holes.length > 0) text.push(`${holes.length} holes`);
  if (mass) text.push('mass');
  return text.join(', ');
}

function createData(setup: AttentionSetup, sparsity: Sparsity, rng: Rng, arithmetic: Arithmetic): KernelData {
  const { globals = [0], landmarks = 'compat', numParts = 1, holes = [], mass = false } = sparsity;
  const { numHeads, valueDim, blockSize, queries, contextLengths } = setup;
  const problem = createAttention(setup, rng, arithmetic);
  const means = randomMeans(problem, setup, numParts, rng);
  const summaries = { keyMeans: numbersOf(means.keyMeans), valueMeans: numbersOf(means.valueMeans) };
  const slotPositions = integersOf(problem.inputs['slotPositions']);
  const table = integersOf(problem.inputs['blockTable']);
  for (const hole of holes) slotPositions[table[Math.floor(hole / blockSize)] * blockSize + (hole % blockSize)] = -1;
  const rows = rowsOf(setup).map(({ query, head }): SeenKey[] => {
    const [sequence, i] = queries[query];
    const tokens = tokensOf(setup, { ...sparsity, globals }, i, contextLengths[sequence]);
    const keys = problem
      .seen(query, head)
      .filter(({ slot }) => tokens.has(slot) && !(sequence === 0 && holes.includes(slot)));
    if (landmarks === 'off') return keys;
    return [...keys, ...landmarksOf(problem, setup, sparsity, tokens, summaries, arithmetic, query, head)];
  });
  return {
    inputs: {
      ...problem.inputs,
      slotPositions: ints(problem.inputs['slotPositions'].shape, slotPositions),
      ...(landmarks === 'off' ? {} : means),
    },
    expected: {
      y: attended(rows, valueDim, arithmetic),
      pairs: integers(queries.map((_, query) => rows[query * numHeads].length)),
      ...(mass ? { mass: masses(problem, setup, rows, arithmetic) } : {}),
    },
  };
}

interface Summaries {
  readonly keyMeans: Float64Array;
  readonly valueMeans: Float64Array;
}

/** The landmarks of a query head. */
function landmarksOf(
  problem: AttentionProblem,
  setup: AttentionSetup,
  sparsity: Sparsity,
  tokens: ReadonlySet<number>,
  { keyMeans, valueMeans }: Summaries,
  arithmetic: Arithmetic,
  query: number,
  head: number,
): SeenKey[] {
  const { landmarks, logCount = false, numParts = 1 } = sparsity;
  const { numHeads, numKvHeads, headDim, valueDim, blockSize, queries, contextLengths, window, causal } = setup;
  const partSize = blockSize / numParts;
  const [sequence, i] = queries[query];
  const n = contextLengths[sequence];
  const isInside = (j: number): boolean => window === 0 || (causal ? i - j < window : Math.abs(i - j) <= window >> 1);
  const found: SeenKey[] = [];
  for (const block of blocksOf(setup, sparsity, i, n, partSize)) {
    const end = Math.min(n, (block + 1) * partSize);
    const members = Array.from({ length: end - block * partSize }, (_, offset) => block * partSize + offset);
    if (causal && members.length < partSize) continue; // not all of it is in the cache
    if (landmarks === 'outside-window' && members.every((j) => tokens.has(j))) continue;
    if (!members.every(isInside)) continue;
    const index = summaryIndex(problem, numParts, sequence, block, Math.floor(head / (numHeads / numKvHeads)));
    const key = rowOf(keyMeans, index, headDim);
    const bias = logCount ? Math.log(members.length) : 0;
    const { logit, logitError } = problem.meet(query, head, key);
    const error = logitError + arithmetic.elementary * bias + 2 * arithmetic.unit * Math.abs(logit + bias);
    const value = rowOf(valueMeans, index, valueDim);
    found.push({ slot: -1, position: -1, key, logit: logit + bias, logitError: error, value });
  }
  return found;
}

const long = { contextLengths: [200], queries: chunkOf(200, 100), numHeads: 2, numKvHeads: 2 };

export const subquadraticAttentionCases: readonly KernelCase[] = [
  ...sparseSetups.map((setup) => subquadraticCase(setup, { local: 4 })),
  ...[1, 2, 5, 64, 70].map((length) =>
    subquadraticCase(
      sparseSetup(`prefill of ${length}`, { contextLengths: [length], queries: chunkOf(length), numHeads: 2 }),
      { local: 4 },
    ),
  ),
  // tokens whose heads are parts of two panels, and new landmarks in between
  ...(['f32', 'f16'] as const).map((dtype) =>
    subquadraticCase(
      sparseSetup(`prefill of 50, 9 heads on 3 KV heads, ${dtype}`, {
        ...{
          contextLengths: [50],
          queries: chunkOf(50),
          numHeads: 9,
          numKvHeads: 3,
          keyDType: dtype,
          valueDType: dtype,
        },
      }),
      { local: 4 },
    ),
  ),
  // landmarks gathered for the end of one record are not those of the first tokens of the next: the same KV head and
  // sequence, as many tiles of tokens as threads, and more
  ...[5, 50, 200].map((length) =>
    subquadraticCase(
      sparseSetup(`prefill of ${length}, 4 heads on 1 KV head`, {
        ...{ contextLengths: [length], queries: chunkOf(length), numHeads: 4, numKvHeads: 1 },
      }),
      { local: 4 },
    ),
  ),
  ...[0, 1, 7, 8, 31, 64].map((local) => subquadraticCase(sparseSetup('long prefill', long), { local })),
  subquadraticCase(sparseSetup('long prefill in blocks of 64', { ...long, blockSize: 64 }), { local: 40, numParts: 8 }),
  subquadraticCase(sparseSetup('wide window', { contextLengths: [700], queries: chunkOf(700, 640) }), { local: 600 }),
  subquadraticCase(
    sparseSetup('wide window, drafts', { contextLengths: [700], queries: chunkOf(700, 697), numHeads: 2 }),
    {
      local: 600,
    },
  ),
  ...(['off', 'outside-window'] as const).flatMap((landmarks) =>
    [true, false].map((logStride) =>
      subquadraticCase(sparseSetup('several sequences', severalSequences), { local: 9, landmarks, logStride }),
    ),
  ),
  ...[1, 2, 4, 8].map((numParts) =>
    subquadraticCase(sparseSetup('several sequences', severalSequences), {
      ...{ local: 3, numParts, landmarks: 'outside-window', logCount: true },
    }),
  ),
  ...massSetups
    .filter(({ isShuffled }) => !isShuffled)
    .map((setup) => subquadraticCase(setup, { local: 4, globals: [0, 3, 7], mass: true })),
  ...[7, 64].map((local) => subquadraticCase(sparseSetup('long prefill', long), { local, mass: true })),
  subquadraticCase(sparseSetup('model window of 12', { ...long, window: 12 }), { local: 31, mass: true }),
  subquadraticCase(
    sparseSetup('bidirectional', { contextLengths: [69], queries: chunkOf(69), causal: false, numHeads: 2 }),
    { local: 12, landmarks: 'outside-window', logCount: true, mass: true },
  ),
  subquadraticCase(sparseSetup('empty slots', { contextLengths: [60], queries: chunkOf(60, 40) }), {
    ...{ local: 4, holes: [0, 3, 39, 43, 44, 50], mass: true },
  }),
  subquadraticCase(sparseSetup('globals', severalSequences), { local: 2, globals: [] }),
  subquadraticCase(sparseSetup('globals', severalSequences), { local: 2, globals: [0, 1, 2, 3, 11, 30, 39, 1000] }),
  subquadraticCase(sparseSetup('model window of 12', { ...long, window: 12 }), { local: 31 }),
  subquadraticCase(sparseSetup('model window of 50, capped', { ...long, window: 50, softCap: 20 }), { local: 31 }),
  ...[
    { local: 0, logStride: false, landmarks: 'off' as const, globals: [] },
    { local: 4 },
    { local: 12, landmarks: 'outside-window' as const, logCount: true },
    { local: 300, landmarks: 'off' as const },
  ].map((sparsity) =>
    subquadraticCase(
      sparseSetup('bidirectional', { contextLengths: [69], queries: chunkOf(69), causal: false, numHeads: 2 }),
      sparsity,
    ),
  ),
  subquadraticCase(
    sparseSetup('bidirectional, model window of 20', {
      ...severalSequences,
      causal: false,
      window: 20,
      numHeads: 3,
      numKvHeads: 1,
    }),
    { local: 30 },
  ),
  ...[4, 20].map((local) =>
    subquadraticCase(sparseSetup('empty slots', { contextLengths: [60], queries: chunkOf(60, 40) }), {
      ...{ local, holes: [0, 3, 39, 43, 44, 50] },
    }),
  ),
];
