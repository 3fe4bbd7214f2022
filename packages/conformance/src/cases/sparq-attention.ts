import { encode, sizeOf, type DType, type Rng } from '@winnow/tensor';
import type { Arithmetic } from '../arithmetic.js';
import type { CaseTensor, KernelCase, KernelData } from '../kernel-case.js';
import {
  attentionAttributes,
  createAttention,
  type AttentionProblem,
  type AttentionSetup,
  type SeenKey,
} from '../setups/attention-setup.js';
import {
  attended,
  clearlyLargest,
  inputNumbers,
  integers,
  masses,
  randomMeans,
  rowOf,
  summaryIndex,
} from '../setups/sparse-setup.js';
import { chunkOf, massSetups, severalSequences, sparseSetup, sparseSetups } from '../setups/sparse-setups.js';
import { close, floats, integersOf, ints, numbersOf, product } from '../values.js';

interface Sparsity {
  readonly rank: number;
  readonly topK: number;
  readonly local?: number;
  readonly meanValue?: boolean;
  readonly temperature?: boolean;
  readonly grouped?: boolean;
  /** Dtype of the transposed copy of the keys; none without it. */
  readonly columns?: DType;
  /** Summaries per cache block; undefined: the op sums values itself. */
  readonly numParts?: number;
  readonly mass?: boolean;
}

/** A number and its error bound. */
interface Bounded {
  readonly value: number;
  readonly error: number;
}

/** The keys of a cache, transposed within blocks. */
function columnsOf({ inputs }: AttentionProblem, dtype: DType): CaseTensor {
  const [numBlocks, numKvHeads, blockSize, headDim] = inputs['keys'].shape;
  const keys = numbersOf(inputs['keys']);
  const shape = [numBlocks, numKvHeads, headDim, blockSize];
  const transposed = Float32Array.from({ length: product(shape) }, (_, index) => {
    const [slot, rest] = [index % blockSize, Math.floor(index / blockSize)];
    return keys[(Math.floor(rest / headDim) * blockSize + slot) * headDim + (rest % headDim)];
  });
  const bytes = new Uint8Array(sizeOf(dtype, transposed.length));
  encode(dtype, transposed, bytes);
  return { dtype, shape, bytes };
}

/** True means of the blocks, for slots in order; those whose count is wrong stay as they are, and must not be used. */
function meansOf(
  problem: AttentionProblem,
  setup: AttentionSetup,
  numParts: number,
  { valueMeans: random, meanCounts }: ReturnType<typeof randomMeans>,
): CaseTensor {
  const { contextLengths, blockSize, numKvHeads, valueDim } = setup;
  const means = numbersOf(random);
  const counts = integersOf(meanCounts);
  const values = inputNumbers(problem, 'values');
  const partSize = blockSize / numParts;
  for (const [sequence, length] of contextLengths.entries()) {
    for (let block = 0; block * partSize < length; block++) {
      const count = Math.min(partSize, length - block * partSize);
      for (let head = 0; head < numKvHeads; head++) {
        const index = summaryIndex(problem, numParts, sequence, block, head);
        if (counts[index] !== count) continue;
        const cacheBlock = Math.floor(index / numKvHeads / numParts);
        const first = (cacheBlock * numKvHeads + head) * blockSize + (block % numParts) * partSize;
        for (let i = 0; i < valueDim; i++) {
          let sum = 0;
          for (let offset = 0; offset < count; offset++) sum += rowOf(values, first + offset, valueDim)[i];
          means[index * valueDim + i] = sum / count;
        }
      }
    }
  }
  return floats(random.shape, means);
}

/** Every third mean lacks its last token, as one does whose block was filled without it. */
function outdated<Means extends { readonly meanCounts: CaseTensor }>(means: Means): Means {
  const counts = integersOf(means.meanCounts).map((count, index) => (index % 3 === 2 ? count - 1 : count));
  return { ...means, meanCounts: ints(means.meanCounts.shape, counts) };
}

/** A logit from some components, divided by the temperature. */
function approximate(
  { scale }: AttentionProblem,
  { softCap }: AttentionSetup,
  q: Float64Array,
  key: Float64Array,
  components: readonly number[],
  hasTemperature: boolean,
  { unit, elementary, tiny }: Arithmetic,
): Bounded {
  let kept = 0;
  let all = 0;
  let sum = 0;
  let magnitude = 0;
  for (const x of q) all += Math.abs(x);
  for (const i of components) {
    kept += Math.abs(q[i]);
    sum += q[i] * key[i];
    magnitude += Math.abs(q[i] * key[i]);
  }
  const factor = scale * (hasTemperature && kept > 0 ? Math.sqrt(all / kept) : 1);
  let value = factor * sum;
  // two sums of magnitudes under a root, their quotient, the products and their sum
  let error = (3 * q.length + 12) * unit * Math.abs(factor) * magnitude + elementary * Math.abs(value) + tiny;
  if (softCap !== 0) {
    value = softCap * Math.tanh(value / softCap);
    error += (elementary + 4 * unit) * Math.abs(value);
  }
  return { value, error };
}

function sparqCase(setup: AttentionSetup, sparsity: Sparsity): KernelCase {
  const { rank, topK, local = 0, meanValue = true, temperature = true, grouped = true, columns, numParts } = sparsity;
  const { mass = false } = sparsity;
  const switches = Object.entries({ meanValue, temperature, grouped }).filter(([, isOn]) => !isOn);
  const text = [
    `rank ${rank}, top ${topK}, local ${local}`,
    ...switches.map(([name]) => `no ${name}`),
    ...(columns === undefined ? [] : [`${columns} columns`]),
    ...(numParts === undefined ? [] : [`means of ${numParts} parts`]),
    ...(mass ? ['mass'] : []),
  ];
  return {
    op: 'sparq-attention',
    name: `${setup.name}, ${text.join(', ')}`,
    dtypes: { keys: setup.keyDType, values: setup.valueDType, ...(columns === undefined ? {} : { columns }) },
    attributes: { ...attentionAttributes(setup), rank, topK, local, meanValue, temperature, grouped, mass },
    create: (rng, arithmetic) => createData(setup, sparsity, rng, arithmetic),
  };
}

function createData(setup: AttentionSetup, sparsity: Sparsity, rng: Rng, arithmetic: Arithmetic): KernelData {
  const { topK, columns, numParts, grouped = true, mass = false } = sparsity;
  const { queries, numHeads, numKvHeads } = setup;
  const problem = createAttention(setup, rng, arithmetic);
  const kept = columns === undefined ? undefined : columnsOf(problem, columns);
  const random = numParts === undefined ? undefined : outdated(randomMeans(problem, setup, numParts, rng));
  const means =
    random === undefined || numParts === undefined
      ? {}
      : { valueMeans: meansOf(problem, setup, numParts, random), meanCounts: random.meanCounts };
  const groupSize = grouped ? numHeads / numKvHeads : 1;
  const heads: HeadResult[] = [];
  for (const query of queries.keys()) {
    for (let first = 0; first < numHeads; first += groupSize) {
      const group = Array.from({ length: groupSize }, (_, g) => first + g);
      heads.push(...attendGroup({ problem, setup, sparsity, arithmetic }, query, group));
    }
  }
  const outputs = heads.flatMap(({ outputs: row }) => row);
  const attendedKeys = heads.map(({ keys }) => keys);
  return {
    inputs: { ...problem.inputs, ...(kept === undefined ? {} : { columns: kept }), ...means },
    expected: {
      y: close(outputs.length, (index) => [outputs[index].value, outputs[index].error + arithmetic.tiny]),
      alpha: close(heads.length, (index) => [Math.min(1, heads[index].alpha.value), heads[index].alpha.error]),
      ...(mass ? { mass: masses(problem, setup, attendedKeys, arithmetic) } : {}),
      pairs: integers(queries.map((_, query) => Math.min(topK, problem.seen(query, 0).length))),
    },
  };
}

/** The results of one query head. */
interface HeadResult {
  readonly keys: readonly SeenKey[];
  readonly alpha: Bounded;
  readonly outputs: readonly Bounded[];
}

interface Truth {
  readonly problem: AttentionProblem;
  readonly setup: AttentionSetup;
  readonly sparsity: Sparsity;
  readonly arithmetic: Arithmetic;
}

/** The heads that select keys together. */
function attendGroup(truth: Truth, query: number, heads: readonly number[]): HeadResult[] {
  const { problem, setup, sparsity, arithmetic } = truth;
  const { topK, local = 0, meanValue = true } = sparsity;
  const all = heads.map((head) => problem.seen(query, head));
  const [keys] = all;
  if (keys.length <= topK) {
    return all.map((own) => ({ keys: own, alpha: { value: 1, error: 0 }, outputs: exactOutputs(truth, own) }));
  }
  const weights = approximateWeights(truth, query, heads, keys);
  const position = setup.queries[query][1];
  const totals = keys.map((key, index) =>
    position - key.position < local ? Infinity : weights.reduce((sum, row) => sum + row[index].value, 0),
  );
  const errors = keys.map((_, i) => weights.reduce((sum, row) => sum + row[i].error, 0));
  const chosen = clearlyLargest(totals, topK, errors);
  return heads.map((_, g) => {
    const value = chosen.reduce((sum, index) => sum + weights[g][index].value, 0);
    const error = chosen.reduce((sum, i) => sum + weights[g][i].error, chosen.length * arithmetic.unit * value);
    const own = chosen.map((index) => all[g][index]);
    const alpha = { value, error };
    const outputs = meanValue ? blendedOutputs(truth, own, keys, alpha) : exactOutputs(truth, own);
    return { keys: own, alpha, outputs };
  });
}

/** Softmax weights of the approximate logits of each head. */
function approximateWeights(truth: Truth, query: number, heads: readonly number[], keys: readonly SeenKey[]) {
  const { problem, setup, sparsity, arithmetic } = truth;
  const { rank, temperature = true, columns } = sparsity;
  const { unit, elementary } = arithmetic;
  const qs = inputNumbers(problem, 'q');
  const rows = heads.map((head) => rowOf(qs, query * setup.numHeads + head, setup.headDim));
  const magnitudes = Array.from({ length: setup.headDim }, (_, i) =>
    rows.reduce((sum, row) => sum + Math.abs(row[i]), 0),
  );
  const errors = magnitudes.map((m) => heads.length * unit * m);
  const components = clearlyLargest(magnitudes, rank, errors);
  return rows.map((row): Bounded[] => {
    const logits = keys.map(({ key }) => {
      const stored = columns === undefined ? key : rounded(columns, key);
      return approximate(problem, setup, row, stored, components, temperature, arithmetic);
    });
    const max = Math.max(...logits.map(({ value }) => value));
    const error = 2 * Math.max(...logits.map((logit) => logit.error)) + (keys.length + 20) * unit + 4 * elementary;
    const sum = logits.reduce((total, { value }) => total + Math.exp(value - max), 0);
    return logits.map(({ value }) => {
      const weight = Math.exp(value - max) / sum;
      return { value: weight, error: weight * (error + 2 * unit * (max - value)) };
    });
  });
}

function exactOutputs({ setup, arithmetic }: Truth, own: readonly SeenKey[]): Bounded[] {
  const { values, bounds } = attended([own], setup.valueDim, arithmetic);
  return [...values].map((value, i) => ({ value, error: bounds[i] + arithmetic.unit * Math.abs(value) }));
}

/** Exact attention over the selected keys, blended with the mean of all values. */
function blendedOutputs(
  { setup, arithmetic }: Truth,
  own: readonly SeenKey[],
  keys: readonly SeenKey[],
  { value: share, error: shareError }: Bounded,
): Bounded[] {
  const { unit } = arithmetic;
  const exact = attended([own], setup.valueDim, arithmetic);
  return Array.from({ length: setup.valueDim }, (_, i) => {
    const [z, zError] = [exact.values[i], exact.bounds[i]];
    const mean = keys.reduce((sum, { value }) => sum + value[i], 0) / keys.length;
    const magnitude = keys.reduce((sum, { value }) => sum + Math.abs(value[i]), 0) / keys.length;
    const meanError = (keys.length + 16) * unit * magnitude;
    const parts = Math.abs(share * z) + Math.abs((1 - share) * mean);
    const error = share * zError + (1 - share) * meanError + shareError * (Math.abs(z) + Math.abs(mean));
    return { value: share * z + (1 - share) * mean, error: error + 6 * unit * (parts + magnitude) };
  });
}

/** A key as its column copy holds it. */
function rounded(dtype: DType, key: Float64Array): Float64Array {
  const bytes = new Uint8Array(sizeOf(dtype, key.length));
  encode(dtype, Float32Array.from(key), bytes);
  return numbersOf({ dtype, shape: [key.length], bytes });
}

const shuffled = { ...severalSequences, isShuffled: true };

export const sparqAttentionCases: readonly KernelCase[] = [
  ...sparseSetups.map((setup) => sparqCase(setup, { rank: 5, topK: 9, local: 3 })),
  ...sparseSetups
    .filter(({ name }) => /drafts|several|blocks of|cache|window|heads of/.test(name))
    .map((setup) => {
      const dtype = setup.keyDType === 'f32' || setup.keyDType === 'bf16' ? setup.keyDType : 'f16';
      return sparqCase(setup, { rank: 7, topK: 11, local: 2, columns: dtype, numParts: 1 });
    }),
  ...[1, 3, 8].map((rank) => sparqCase(sparseSetup('any order', shuffled), { rank, topK: 8, local: 2 })),
  ...[1, 12, 100].map((topK) => sparqCase(sparseSetup('any order', shuffled), { rank: 4, topK, local: 1 })),
  sparqCase(sparseSetup('all components', severalSequences), { rank: 16, topK: 10, local: 10 }),
  ...[
    { meanValue: false },
    { temperature: false },
    { grouped: false },
    { grouped: false, columns: 'f32' as const },
  ].map((switches) =>
    sparqCase(sparseSetup('several sequences', severalSequences), { rank: 6, topK: 10, local: 3, ...switches }),
  ),
  ...massSetups.flatMap((setup) =>
    [true, false].map((grouped) => sparqCase(setup, { rank: 5, topK: grouped ? 9 : 7, local: 3, grouped, mass: true })),
  ),
  sparqCase(
    sparseSetup('decode after 5000', {
      ...{
        contextLengths: [5000],
        queries: [[0, 4999]],
        numHeads: 2,
        numKvHeads: 1,
        headDim: 8,
        valueDim: 4,
        blockSize: 64,
      },
    }),
    { rank: 5, topK: 40, local: 10, columns: 'f32', numParts: 1 },
  ),
  ...[1, 2, 8].map((numParts) =>
    sparqCase(sparseSetup('drafts', { contextLengths: [150], queries: chunkOf(150, 146) }), {
      ...{ rank: 6, topK: 20, local: 5, numParts, columns: 'f32' },
    }),
  ),
];
