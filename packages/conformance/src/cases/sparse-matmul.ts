import { weightDTypes } from '@winnow/ops';
import { dtypeInfo, type DType } from '@winnow/tensor';
import type { KernelCase } from '../kernel-case.js';
import { chosenRows, type RowChoice } from '../setups/row-choice.js';
import { close, gaussian, ints, numbersOf, randomTensor } from '../values.js';

interface SparseShape {
  readonly numTokens: number;
  readonly numInputs: number;
  /** F, the length of `rows`. */
  readonly numNeurons: number;
  readonly numRows?: number;
  readonly choice: RowChoice;
}

function sparseCase(dtype: DType, shape: SparseShape, bias: 'none' | 'by row' | 'by id' = 'none'): KernelCase {
  const { numTokens, numInputs, numNeurons, numRows = numNeurons, choice } = shape;
  return {
    op: 'sparse-matmul',
    name:
      `${dtype}, ${numTokens} x ${numInputs} -> ${choice} of ${numNeurons}` +
      `${numRows === numNeurons ? '' : ` in ${numRows}`}${bias === 'none' ? '' : `, bias ${bias}`}`,
    dtypes: { weight: dtype },
    attributes: {},
    // as for matmul: n + 1 roundings of the sum of magnitudes, one more for the bias; decoding a block takes 2 more
    create(rng, { unit, tiny }) {
      const x = gaussian(rng, [numTokens, numInputs], 1, 0);
      const weight = randomTensor(rng, dtype, [numRows, numInputs]);
      const { rows, count } = chosenRows(rng, choice, numNeurons, numRows);
      const ids = Array.from({ length: numNeurons }, (_, j) => numNeurons - 1 - j);
      const biases = gaussian(rng, [numNeurons]);
      const [xs, ws, bs] = [numbersOf(x), numbersOf(weight), numbersOf(biases)];
      const y = close(numTokens * numNeurons, (index) => {
        const [t, j] = [Math.floor(index / numNeurons), index % numNeurons];
        if (j >= count) return [0, 0];
        let sum = bias === 'none' ? 0 : bs[bias === 'by id' ? ids[j] : rows[j]];
        let magnitude = Math.abs(sum);
        for (let i = numInputs - 1; i >= 0; i--) {
          const term = xs[t * numInputs + i] * ws[rows[j] * numInputs + i];
          sum += term;
          magnitude += Math.abs(term);
        }
        const numRoundings = numInputs + 2 + (dtypeInfo(dtype).isQuantized ? 2 : 0);
        return [sum, numRoundings * (unit * magnitude + tiny)];
      });
      const inputs = { x, weight, rows: ints([numNeurons], rows), count: ints([1], [count]) };
      return {
        inputs: {
          ...inputs,
          ...(bias === 'none' ? {} : { bias: biases }),
          ...(bias === 'by id' ? { ids: ints([numNeurons], ids) } : {}),
        },
        expected: { y },
      };
    },
  };
}

const dtypeCases = weightDTypes.flatMap((dtype) => {
  const unit = Math.max(dtypeInfo(dtype).blockSize, 32);
  return [
    sparseCase(dtype, { numTokens: 1, numInputs: 2 * unit, numNeurons: 23, choice: 'some' }, 'by row'),
    sparseCase(dtype, { numTokens: 1, numInputs: 3 * unit, numNeurons: 9, numRows: 5, choice: 'slots' }),
    sparseCase(dtype, { numTokens: 1, numInputs: unit, numNeurons: 37, choice: 'all' }),
    sparseCase(dtype, { numTokens: 5, numInputs: 2 * unit, numNeurons: 37, choice: 'all' }, 'by id'),
    sparseCase(dtype, { numTokens: 17, numInputs: unit, numNeurons: 70, numRows: 77, choice: 'slots' }, 'by id'),
  ];
});

const shapeCases = [
  { numTokens: 0, numInputs: 32, numNeurons: 4, choice: 'all' },
  { numTokens: 1, numInputs: 1, numNeurons: 1, choice: 'all' },
  { numTokens: 1, numInputs: 33, numNeurons: 7, choice: 'none' },
  { numTokens: 2, numInputs: 17, numNeurons: 300, choice: 'some' },
  { numTokens: 3, numInputs: 129, numNeurons: 40, choice: 'one' },
  { numTokens: 40, numInputs: 67, numNeurons: 65, choice: 'some' },
  { numTokens: 9, numInputs: 1023, numNeurons: 3, choice: 'all' },
].flatMap((shape) => [
  sparseCase('f32', shape as SparseShape),
  sparseCase('f16', shape as SparseShape, 'by row'),
  sparseCase('f32', { ...(shape as SparseShape), numRows: shape.numNeurons + 3, choice: 'slots' }, 'by id'),
]);

export const sparseMatmulCases: readonly KernelCase[] = [...dtypeCases, ...shapeCases];
