import { neuronGroup, weightDTypes } from '@winnow/ops';
import { dtypeInfo, type DType } from '@winnow/tensor';
import type { KernelCase } from '../kernel-case.js';
import { chosenRows, type RowChoice } from '../setups/row-choice.js';
import { close, floats, gaussian, ints, numbersOf, randomTensor } from '../values.js';

interface CombineShape {
  readonly numTokens: number;
  /** F, the columns of h. */
  readonly numNeurons: number;
  readonly numOutputs: number;
  readonly numRows?: number;
  readonly choice: RowChoice;
  /** Whether sums continue from `previous`. */
  readonly isContinued?: boolean;
}

function combineCase(dtype: DType, shape: CombineShape): KernelCase {
  const { numTokens, numNeurons, numOutputs, numRows = numNeurons, choice, isContinued = false } = shape;
  return {
    op: 'sparse-combine',
    name:
      `${dtype}, ${numTokens} x ${choice} of ${numNeurons}` +
      `${numRows === numNeurons ? '' : ` in ${numRows}`} -> ${numOutputs}` +
      (isContinued ? ', continued' : ''),
    dtypes: { weight: dtype },
    attributes: {},
    // count products and sums in any order: count + 1 roundings of the sum of magnitudes; what is rounded between
    // groups of rows is one more each, and decoding a block takes 2 more
    create(rng, { unit, tiny }) {
      const { rows, count } = chosenRows(rng, choice, numNeurons, numRows);
      // values beyond the count must not matter
      const h = floats(
        [numTokens, numNeurons],
        Float32Array.from({ length: numTokens * numNeurons }, (_, i) =>
          i % numNeurons < count ? rng.nextGaussian() : NaN,
        ),
        0,
      );
      const weight = randomTensor(rng, dtype, [numRows, numOutputs]);
      const [hs, ws] = [numbersOf(h), numbersOf(weight)];
      const previous = gaussian(rng, [numTokens, numOutputs], 1, 0);
      const before = isContinued ? numbersOf(previous) : undefined;
      const y = close(numTokens * numOutputs, (index) => {
        const [t, o] = [Math.floor(index / numOutputs), index % numOutputs];
        let sum = before?.[index] ?? 0;
        let magnitude = Math.abs(sum);
        for (let j = count - 1; j >= 0; j--) {
          const term = hs[t * numNeurons + j] * ws[rows[j] * numOutputs + o];
          sum += term;
          magnitude += Math.abs(term);
        }
        const numRoundings = count + 1 + Math.floor(count / neuronGroup) + (dtypeInfo(dtype).isQuantized ? 2 : 0);
        return [sum, numRoundings * (unit * magnitude + tiny)];
      });
      return {
        inputs: {
          h,
          weight,
          rows: ints([numNeurons], rows),
          count: ints([1], [count]),
          ...(isContinued ? { previous } : {}),
        },
        expected: { y },
      };
    },
  };
}

const dtypeCases = weightDTypes.flatMap((dtype) => {
  const unit = Math.max(dtypeInfo(dtype).blockSize, 32);
  return [
    combineCase(dtype, { numTokens: 1, numNeurons: 23, numOutputs: 2 * unit, choice: 'some' }),
    combineCase(dtype, { numTokens: 1, numNeurons: 9, numOutputs: 3 * unit, numRows: 5, choice: 'slots' }),
    combineCase(dtype, { numTokens: 1, numNeurons: 71, numOutputs: unit, choice: 'all' }),
    combineCase(dtype, { numTokens: 5, numNeurons: 37, numOutputs: 2 * unit, choice: 'all' }),
    combineCase(dtype, { numTokens: 17, numNeurons: 70, numOutputs: unit, numRows: 77, choice: 'slots' }),
    combineCase(dtype, { numTokens: 2, numNeurons: 40, numOutputs: 2 * unit, choice: 'some', isContinued: true }),
    combineCase(dtype, { numTokens: 7, numNeurons: 67, numOutputs: unit, choice: 'all', isContinued: true }),
  ];
});

const shapeCases = [
  { numTokens: 0, numNeurons: 4, numOutputs: 32, choice: 'all' },
  { numTokens: 1, numNeurons: 1, numOutputs: 1, choice: 'all' },
  { numTokens: 3, numNeurons: 7, numOutputs: 33, choice: 'none' },
  { numTokens: 1, numNeurons: 300, numOutputs: 17, choice: 'some' },
  { numTokens: 3, numNeurons: 40, numOutputs: 129, choice: 'one' },
  { numTokens: 40, numNeurons: 65, numOutputs: 67, choice: 'some' },
  { numTokens: 2, numNeurons: 5, numOutputs: 1023, choice: 'all' },
  { numTokens: 3, numNeurons: 7, numOutputs: 33, choice: 'none', isContinued: true },
  { numTokens: 70, numNeurons: 9, numOutputs: 31, choice: 'none', isContinued: true },
  { numTokens: 70, numNeurons: 131, numOutputs: 259, choice: 'all', isContinued: true },
].flatMap((shape) => [
  combineCase('f32', shape as CombineShape),
  combineCase('f16', shape as CombineShape),
  combineCase('bf16', { ...(shape as CombineShape), numRows: shape.numNeurons + 3, choice: 'slots' }),
]);

export const sparseCombineCases: readonly KernelCase[] = [...dtypeCases, ...shapeCases];
