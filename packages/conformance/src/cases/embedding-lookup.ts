import { weightDTypes } from '@winnow/ops';
import { dtypeInfo, type DType } from '@winnow/tensor';
import type { KernelCase } from '../kernel-case.js';
import { close, ints, lengths, numbersOf, randomTensor } from '../values.js';

function lookupCase(dtype: DType, hiddenDim: number, tokens: readonly number[], scale: number): KernelCase {
  return {
    op: 'embedding-lookup',
    name: `${dtype}, ${tokens.length} rows of ${hiddenDim}${scale === 1 ? '' : `, scale ${scale}`}`,
    dtypes: { table: dtype },
    attributes: { scale },
    // floats are exact; a block is a product and a sum of numbers no larger than twice the row; a scale rounds once more
    create(rng, { unit, tiny }) {
      const table = randomTensor(rng, dtype, [6, hiddenDim]);
      const rows = numbersOf(table);
      const decoding = dtypeInfo(dtype).isQuantized ? 4 * unit : 0;
      const largestOf = tokens.map((token) => maxAbs(rows.subarray(token * hiddenDim, (token + 1) * hiddenDim)));
      const y = close(tokens.length * hiddenDim, (i) => {
        const token = Math.floor(i / hiddenDim);
        const value = rows[tokens[token] * hiddenDim + (i % hiddenDim)] * Math.fround(scale);
        return [
          value,
          decoding * largestOf[token] * Math.abs(scale) + (scale === 1 ? 0 : unit * Math.abs(value) + tiny),
        ];
      });
      return { inputs: { table, tokens: ints([tokens.length], tokens, 0) }, expected: { y } };
    },
  };
}

function maxAbs(values: Float64Array): number {
  return values.reduce((max, value) => Math.max(max, Math.abs(value)), 0);
}

export const embeddingLookupCases: readonly KernelCase[] = [
  ...weightDTypes.flatMap((dtype) => {
    const unit = Math.max(32, dtypeInfo(dtype).blockSize);
    return [
      lookupCase(dtype, unit, [5, 0, 5], 1),
      lookupCase(dtype, 3 * unit, [2], 1),
      lookupCase(dtype, 2 * unit, [], 1),
      lookupCase(dtype, 2 * unit, [1, 2, 3, 4], 11.3137),
    ];
  }),
  ...lengths.filter((length) => length % 32 !== 0).map((length) => lookupCase('f32', length, [3, 1], 1)),
  ...lengths.filter((length) => length % 32 !== 0).map((length) => lookupCase('f16', length, [4, 4, 0], 0.5)),
];
