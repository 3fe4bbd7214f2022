import type { ActivationKind } from '@winnow/ops';
import { dtypeInfo, type DType } from '@winnow/tensor';
import { activationTruth } from '../activation-truth.js';
import type { KernelCase } from '../kernel-case.js';
import { close, gaussian, numbersOf, randomTensor } from '../values.js';

/** The steepest slope of these activations: that of gelu and silu is below 1.13, at about 1.4 and 2.4. */
const maxSlope = 1.13;
const kinds: readonly ActivationKind[] = ['silu', 'gelu-tanh', 'gelu-erf', 'relu', 'sigmoid'];

/**
 * With bounds g and u of the two products (`matmul`), and a of the activation: the activation is off by at most a + 1.13 g, and the
 * result by (a + 1.13 g) |up| + |activation| u + (a + 1.13 g) u, and one more rounding.
 */
function gatedMatmulCase(
  kind: ActivationKind,
  dtype: DType,
  numTokens: number,
  numInputs: number,
  numOutputs: number,
): KernelCase {
  return {
    op: 'gated-matmul',
    name: `${kind}, ${dtype}, ${numTokens} x ${numInputs} -> ${numOutputs}`,
    dtypes: { gate: dtype, up: dtype },
    attributes: { kind },
    create(rng, arithmetic) {
      const { unit, tiny } = arithmetic;
      const x = gaussian(rng, [numTokens, numInputs], 1, 0);
      const gate = randomTensor(rng, dtype, [numOutputs, numInputs]);
      const up = randomTensor(rng, dtype, [numOutputs, numInputs]);
      const xs = numbersOf(x);
      const numRoundings = numInputs + 1 + (dtypeInfo(dtype).isQuantized ? 2 : 0);
      const product = (weights: ArrayLike<number>, t: number, o: number): readonly [number, number] => {
        let [sum, magnitude] = [0, 0];
        for (let i = 0; i < numInputs; i++) {
          const term = xs[t * numInputs + i] * weights[o * numInputs + i];
          sum += term;
          magnitude += Math.abs(term);
        }
        return [sum, numRoundings * (unit * magnitude + tiny)];
      };
      const [gates, ups] = [numbersOf(gate), numbersOf(up)];
      const y = close(numTokens * numOutputs, (index) => {
        const [t, o] = [Math.floor(index / numOutputs), index % numOutputs];
        const [g, boundOfGate] = product(gates, t, o);
        const [u, boundOfUp] = product(ups, t, o);
        const [a, boundOfActivation] = activationTruth(kind, g, arithmetic);
        const bound = boundOfActivation + maxSlope * boundOfGate;
        return [a * u, bound * Math.abs(u) + (Math.abs(a) + bound) * boundOfUp + unit * Math.abs(a * u) + tiny];
      });
      return { inputs: { x, gate, up }, expected: { y } };
    },
  };
}

const sizes = [
  [0, 32, 3],
  [1, 96, 7],
  [3, 64, 33],
  [17, 32, 16],
] as const;

export const gatedMatmulCases: readonly KernelCase[] = [
  ...(['f32', 'f16', 'q8_0', 'q4_0'] as const).flatMap((dtype) =>
    sizes.map(([numTokens, numInputs, numOutputs]) => gatedMatmulCase('silu', dtype, numTokens, numInputs, numOutputs)),
  ),
  ...kinds.slice(1).map((kind) => gatedMatmulCase(kind, 'f32', 3, 64, 33)),
];
