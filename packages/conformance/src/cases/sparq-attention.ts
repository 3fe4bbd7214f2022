import { encode, sizeOf, type DType } from '@winnow/tensor';
import {
  attentionAttributes,
  createAttention,
  type AttentionProblem,
  type AttentionSetup,
  type SeenKey,
} from '../attention-setup.js';
import type { Arithmetic } from '../arithmetic.js';
import type { CaseTensor, KernelCase } from '../kernel-case.js';
import {
  attended,
  clearlyLargest,
  inputNumbers,
  integers,
  masses,
  randomMeans,
  rowOf,
  summaryIndex,
} from '../sparse-setup.js';
import { chunkOf, massSetups, severalSequences, sparseSetup, sparseSetups } from '../sparse-setups.js';
import { close, floats, numbersOf, product } from '../values.js';

interface Sparsity {
  readonly rank: number;
  readonly topK: number;
  readonly local?: number;
  readonly meanValue?: boolean;
  readonly temperature?: boolean;
  readonly grouped?: boolean;
  /** Dtype of the transposed copy of the keys; none without it. */
  readonly columns?: DType;
  /** Summaries per cache block; without it the op sums values itself. */
  readonly numParts?: number;
  readonly mass?: boolean;
}

/** A number and how far from it rounding may lead. */
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

/** True means of the blocks, where everything is seen by slots in order. */
function meansOf(problem: AttentionProblem, setup: AttentionSetup, numParts: number, random: CaseTensor): CaseTensor {
  const { contextLengths, blockSize, numKvHeads, valueDim } = setup;
  const means = numbersOf(random);
  const values = inputNumbers(problem, 'values');
  const partSize = blockSize / numParts;
  for (const [sequence, length] of contextLengths.entries()) {
    for (let block = 0; block * partSize < length; block++) {
      const count = Math.min(partSize, length - block * partSize);
      for (let head = 0; head < numKvHeads; head++) {
        const index = summaryIndex(problem, numParts, sequence, block, head);
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
    create(rng, arithmetic) {
      const problem = createAttention(setup, rng, arithmetic);
      const { queries, numHeads, numKvHeads, headDim, valueDim } = setup;
      const { unit, elementary } = arithmetic;
      const groupSize = grouped ? numHeads / numKvHeads : 1;
      const qs = inputNumbers(problem, 'q');
      const kept = columns === undefined ? undefined : columnsOf(problem, columns);
      const random = numParts === undefined ? undefined : randomMeans(problem, setup, numParts, rng);
      const means =
        random === undefined || numParts === undefined
          ? {}
          : { valueMeans: meansOf(problem, setup, numParts, random.valueMeans), meanCounts: random.meanCounts };
      const alphas: Bounded[] = [];
      const outputs: Bounded[] = [];
      const attendedKeys: SeenKey[][] = [];
      for (const [query] of queries.entries()) {
        for (let first = 0; first < numHeads; first += groupSize) {
          const heads = Array.from({ length: groupSize }, (_, g) => first + g);
          const all = heads.map((head) => problem.seen(query, head));
          const [keys] = all;
          const isDense = keys.length <= topK;
          const weights: Bounded[][] = [];
          let chosen = keys.map((_, index) => index);
          if (!isDense) {
            const queryRows = heads.map((head) => rowOf(qs, query * numHeads + head, headDim));
            const magnitudes = Array.from({ length: headDim }, (_, i) =>
              queryRows.reduce((sum, row) => sum + Math.abs(row[i]), 0),
            );
            const components = clearlyLargest(
              magnitudes,
              rank,
              magnitudes.map((m) => groupSize * unit * m),
            );
            for (const row of queryRows) {
              const logits = keys.map(({ key }) => {
                const stored = kept === undefined ? key : rounded(kept.dtype, key);
                return approximate(problem, setup, row, stored, components, temperature, arithmetic);
              });
              const max = Math.max(...logits.map(({ value }) => value));
              const error =
                2 * Math.max(...logits.map((logit) => logit.error)) + (keys.length + 20) * unit + 4 * elementary;
              const sum = logits.reduce((total, { value }) => total + Math.exp(value - max), 0);
              weights.push(
                logits.map(({ value }) => {
                  const weight = Math.exp(value - max) / sum;
                  return { value: weight, error: weight * (error + 2 * unit * (max - value)) };
                }),
              );
            }
            const position = queries[query][1];
            const totals = keys.map((key, index) =>
              position - key.position < local ? Infinity : weights.reduce((sum, row) => sum + row[index].value, 0),
            );
            chosen = clearlyLargest(
              totals,
              topK,
              keys.map((_, i) => weights.reduce((sum, row) => sum + row[i].error, 0)),
            );
          }
          for (let g = 0; g < groupSize; g++) {
            const share = isDense ? 1 : chosen.reduce((sum, index) => sum + weights[g][index].value, 0);
            const shareError = isDense
              ? 0
              : chosen.reduce((sum, i) => sum + weights[g][i].error, chosen.length * unit * share);
            alphas.push({ value: share, error: shareError });
            const own = chosen.map((index) => all[g][index]);
            attendedKeys.push(own);
            const exact = attended([own], valueDim, arithmetic);
            for (let i = 0; i < valueDim; i++) {
              const [z, zError] = [exact.values[i], exact.bounds[i]];
              if (isDense || !meanValue) {
                outputs.push({ value: z, error: zError + unit * Math.abs(z) });
                continue;
              }
              const mean = keys.reduce((sum, { value }) => sum + value[i], 0) / keys.length;
              const magnitude = keys.reduce((sum, { value }) => sum + Math.abs(value[i]), 0) / keys.length;
              const meanError = (keys.length + 16) * unit * magnitude;
              const parts = Math.abs(share * z) + Math.abs((1 - share) * mean);
              const error = share * zError + (1 - share) * meanError + shareError * (Math.abs(z) + Math.abs(mean));
              outputs.push({ value: share * z + (1 - share) * mean, error: error + 6 * unit * (parts + magnitude) });
            }
          }
        }
      }
      return {
        inputs: { ...problem.inputs, ...(kept === undefined ? {} : { columns: kept }), ...means },
        expected: {
          y: close(outputs.length, (index) => [outputs[index].value, outputs[index].error + arithmetic.tiny]),
          alpha: close(alphas.length, (index) => [Math.min(1, alphas[index].value), alphas[index].error]),
          ...(mass ? { mass: masses(problem, setup, attendedKeys, arithmetic) } : {}),
          pairs: integers(queries.map((_, query) => Math.min(topK, problem.seen(query, 0).length))),
        },
      };
    },
  };
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
