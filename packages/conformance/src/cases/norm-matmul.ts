import { dtypeInfo, type DType } from '@winnow/tensor';
import type { KernelCase } from '../kernel-case.js';
import { close, gaussian, numbersOf, randomTensor } from '../values.js';

const eps = 1e-5;

/**
 * A normalized value has the bound of `rms-norm`; the products multiply it by the weights, and add the n + 2 roundings of `matmul`, two
 * more for quantized weights.
 */
function normMatmulCase(
  dtype: DType,
  numTokens: number,
  numInputs: number,
  numOutputs: number,
  hasBias: boolean,
): KernelCase {
  return {
    op: 'norm-matmul',
    name: `${dtype}, ${numTokens} x ${numInputs} -> ${numOutputs}${hasBias ? ', bias' : ''}`,
    dtypes: { weight: dtype },
    attributes: { eps },
    create(rng, { unit, elementary, tiny }) {
      const x = gaussian(rng, [numTokens, numInputs], 1, 0);
      const norm = gaussian(rng, [numInputs]);
      const weight = randomTensor(rng, dtype, [numOutputs, numInputs]);
      const bias = gaussian(rng, [numOutputs]);
      const [xs, ns, ws, bs] = [numbersOf(x), numbersOf(norm), numbersOf(weight), numbersOf(bias)];
      const relative = ((numInputs + 1) / 2 + 4) * unit + elementary;
      const numRoundings = numInputs + 2 + (dtypeInfo(dtype).isQuantized ? 2 : 0);
      const y = close(numTokens * numOutputs, (index) => {
        const [t, o] = [Math.floor(index / numOutputs), index % numOutputs];
        const row = xs.subarray(t * numInputs, (t + 1) * numInputs);
        const scale = (row.reduce((sum, v) => sum + (v * v) / numInputs, 0) + Math.fround(eps)) ** -0.5;
        let sum = hasBias ? bs[o] : 0;
        let magnitude = Math.abs(sum);
        for (let i = numInputs - 1; i >= 0; i--) {
          const term = row[i] * scale * ns[i] * ws[o * numInputs + i];
          sum += term;
          magnitude += Math.abs(term);
        }
        return [sum, (numRoundings * unit + relative) * magnitude + numRoundings * tiny];
      });
      return { inputs: { x, norm, weight, ...(hasBias ? { bias } : {}) }, expected: { y } };
    },
  };
}

const sizes = [
  [0, 32, 3],
  [1, 96, 7],
  [3, 64, 33],
  [5, 32, 16],
  [17, 160, 5],
] as const;

export const normMatmulCases: readonly KernelCase[] = (['f32', 'f16', 'q8_0', 'q4_0'] as const).flatMap((dtype) =>
  sizes.map(([numTokens, numInputs, numOutputs], index) =>
    normMatmulCase(dtype, numTokens, numInputs, numOutputs, index % 2 === 1),
  ),
);
