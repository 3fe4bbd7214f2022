import { weightDTypes } from '@winnow/ops';
import { dtypeInfo, type DType } from '@winnow/tensor';
import type { KernelCase } from '../kernel-case.js';
import { close, floats, gaussian, lengths, numbersOf, randomTensor, gaussianWith } from '../values.js';

interface MatmulShape {
  readonly numTokens: number;
  readonly numInputs: number;
  readonly numOutputs: number;
}

function matmulCase(dtype: DType, shape: MatmulShape, hasBias: boolean, content = 'gaussian'): KernelCase {
  const { numTokens, numInputs, numOutputs } = shape;
  return {
    op: 'matmul',
    name: `${dtype}, ${numTokens} x ${numInputs} -> ${numOutputs}${hasBias ? ', bias' : ''}, ${content}`,
    dtypes: { weight: dtype },
    attributes: {},
    // n products and n sums in any order: n + 1 roundings of the sum of magnitudes; dequantizing a block takes 2 more
    create(rng, { unit, tiny }) {
      const x =
        content === 'special'
          ? gaussianWith(rng, [numTokens, numInputs], [0, -0, 1000, -1000, 1e-40, NaN, Infinity, 2 ** -126], 0)
          : gaussian(rng, [numTokens, numInputs], 1, 0);
      const weight = randomTensor(rng, dtype, [numOutputs, numInputs]);
      const bias = gaussian(rng, [numOutputs]);
      const [xs, ws, bs] = [numbersOf(x), numbersOf(weight), numbersOf(bias)];
      const y = close(numTokens * numOutputs, (index) => {
        const [t, o] = [Math.floor(index / numOutputs), index % numOutputs];
        let sum = hasBias ? bs[o] : 0;
        let magnitude = Math.abs(sum);
        for (let i = numInputs - 1; i >= 0; i--) {
          const term = xs[t * numInputs + i] * ws[o * numInputs + i];
          sum += term;
          magnitude += Math.abs(term);
        }
        const numRoundings = numInputs + 2 + (dtypeInfo(dtype).isQuantized ? 2 : 0);
        return [sum, numRoundings * (unit * magnitude + tiny)];
      });
      return { inputs: { x, weight, ...(hasBias ? { bias } : {}) }, expected: { y } };
    },
  };
}

const floatCases = (['f32', 'f16', 'bf16'] as const).flatMap((dtype) =>
  lengths.flatMap((length) => [
    matmulCase(dtype, { numTokens: 1, numInputs: length, numOutputs: 5 }, length % 2 === 0),
    matmulCase(dtype, { numTokens: 3, numInputs: 17, numOutputs: length }, length % 2 === 1),
  ]),
);

const dtypeCases = weightDTypes.flatMap((dtype) => {
  const { blockSize } = dtypeInfo(dtype);
  const unit = Math.max(blockSize, 32);
  return [
    ...[1, 2, 3, 5].map((numBlocks) =>
      matmulCase(dtype, { numTokens: 1, numInputs: numBlocks * unit, numOutputs: 7 }, numBlocks === 2),
    ),
    matmulCase(dtype, { numTokens: 0, numInputs: unit, numOutputs: 3 }, false),
    matmulCase(dtype, { numTokens: 1, numInputs: 2 * unit, numOutputs: 1 }, true),
    matmulCase(dtype, { numTokens: 5, numInputs: 2 * unit, numOutputs: 33 }, true),
    matmulCase(dtype, { numTokens: 17, numInputs: unit, numOutputs: 16 }, false),
  ];
});

const tokenCases = lengths
  .filter((length) => length < 256)
  .map((numTokens) => matmulCase('f32', { numTokens, numInputs: 33, numOutputs: 7 }, false));

/** A NaN or infinity in a column must affect only its tokens. */
const specialCases = [1, 4].map((numTokens) =>
  matmulCase('f32', { numTokens, numInputs: 37, numOutputs: 9 }, true, 'special'),
);

/** Sums of small integers are exact, so every order gives the same bits. */
const integerCases: KernelCase[] = [8, 67, 255].map((numInputs) => ({
  op: 'matmul',
  name: `f32, integers, 3 x ${numInputs} -> 11`,
  dtypes: { weight: 'f32' },
  attributes: {},
  create(rng) {
    const integers = (count: number): number[] => Array.from({ length: count }, () => rng.nextInt(17) - 8);
    const [xs, ws] = [integers(3 * numInputs), integers(11 * numInputs)];
    const y = close(33, (index) => {
      const [t, o] = [Math.floor(index / 11), index % 11];
      return [
        xs.slice(t * numInputs, (t + 1) * numInputs).reduce((sum, v, i) => sum + v * ws[o * numInputs + i], 0),
        0,
      ];
    });
    return { inputs: { x: floats([3, numInputs], xs, 0), weight: floats([11, numInputs], ws) }, expected: { y } };
  },
}));

export const matmulCases: readonly KernelCase[] = [
  ...new Map(
    [...dtypeCases, ...floatCases, ...tokenCases, ...specialCases, ...integerCases].map((c) => [c.name, c]),
  ).values(),
];
