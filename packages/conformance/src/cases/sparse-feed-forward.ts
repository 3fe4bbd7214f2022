import { activationKinds, neuronGroup, weightDTypes, type ActivationKind } from '@winnow/ops';
import { dtypeInfo, type DType } from '@winnow/tensor';
import { activationTruth } from '../activation-truth.js';
import type { Arithmetic } from '../arithmetic.js';
import type { KernelCase } from '../kernel-case.js';
import { chosenRows, type RowChoice } from '../setups/row-choice.js';
import { close, gaussian, ints, numbersOf, randomTensor } from '../values.js';

interface BlockShape {
  readonly numTokens: number;
  /** E. */
  readonly width: number;
  /** F, the length of `rows`. */
  readonly numNeurons: number;
  readonly numRows?: number;
  readonly choice: RowChoice;
  /** Whether sums continue from `previous`. */
  readonly isContinued?: boolean;
}

/** A number and its error bound. */
type Bounded = readonly [value: number, bound: number];

/** A product of float32 numbers: `numRoundings` of the sum of magnitudes. */
function product(
  xs: ArrayLike<number>,
  t: number,
  ws: ArrayLike<number>,
  row: number,
  { width }: BlockShape,
  numRoundings: number,
  { unit, tiny }: Arithmetic,
): Bounded {
  let sum = 0;
  let magnitude = 0;
  for (let i = width - 1; i >= 0; i--) {
    const term = xs[t * width + i] * ws[row * width + i];
    sum += term;
    magnitude += Math.abs(term);
  }
  return [sum, numRoundings * (unit * magnitude + tiny)];
}

/**
 * The maximum slope of the activations near x. The maxima of the derivatives of silu and gelu are 1.0999 and 1.1289.
 */
function steepness(kind: ActivationKind, x: number): number {
  if (kind === 'sigmoid') return 0.25;
  return kind === 'relu2' ? 2 * Math.abs(x) : 1.13;
}

/** `kind(gate) * up` with errors in both. */
function gated(kind: ActivationKind, [g, ofG]: Bounded, [u, ofU]: Bounded, arithmetic: Arithmetic): Bounded {
  const [a] = activationTruth(kind, g, arithmetic);
  const ofKind = Math.max(...[g - ofG, g, g + ofG].map((x) => activationTruth(kind, x, arithmetic)[1]));
  const ofA = steepness(kind, Math.abs(g) + ofG) * ofG + ofKind;
  const ofProduct = ofA * Math.abs(u) + Math.abs(a) * ofU + ofA * ofU;
  return [a * u, ofProduct + arithmetic.unit * (Math.abs(a * u) + ofProduct) + arithmetic.tiny];
}

function blockCase(dtype: DType, kind: ActivationKind, shape: BlockShape): KernelCase {
  const { numTokens, width, numNeurons, numRows = numNeurons, choice, isContinued = false } = shape;
  return {
    op: 'sparse-feed-forward',
    name:
      `${dtype}, ${kind}, ${numTokens} x ${width}, ${choice} of ${numNeurons}` +
      `${numRows === numNeurons ? '' : ` in ${numRows}`}${isContinued ? ', continued' : ''}`,
    dtypes: { weight: dtype },
    attributes: { kind },
    // the bounds of products, activations and sums one after the other
    create(rng, arithmetic) {
      const { unit, tiny } = arithmetic;
      const ofDecoding = dtypeInfo(dtype).isQuantized ? 2 : 0;
      // small, since weights of some dtypes are large: gates should be where activations are nonlinear
      const x = gaussian(rng, [numTokens, width], 1 / 16, 0);
      const weight = randomTensor(rng, dtype, [numRows, 3, width]);
      const { rows, count } = chosenRows(rng, choice, numNeurons, numRows);
      const previous = gaussian(rng, [numTokens, width], 1, 0);
      const [xs, ws, before] = [numbersOf(x), numbersOf(weight), numbersOf(previous)];
      const values = Array.from({ length: numTokens * count }, (_, index) => {
        const [t, row] = [Math.floor(index / count), 3 * rows[index % count]];
        const of = (matrix: number): Bounded =>
          product(xs, t, ws, row + matrix, shape, width + 1 + ofDecoding, arithmetic);
        return gated(kind, of(0), of(1), arithmetic);
      });
      const y = close(numTokens * width, (index) => {
        const [t, i] = [Math.floor(index / width), index % width];
        let sum = isContinued ? before[index] : 0;
        let magnitude = Math.abs(sum);
        let bound = 0;
        for (let j = count - 1; j >= 0; j--) {
          const [h, ofH] = values[t * count + j];
          const w = ws[(3 * rows[j] + 2) * width + i];
          sum += h * w;
          magnitude += (Math.abs(h) + ofH) * Math.abs(w);
          bound += ofH * Math.abs(w);
        }
        const numRoundings = count + 1 + Math.ceil(count / neuronGroup) + ofDecoding;
        return [sum, bound + numRoundings * (unit * magnitude + tiny)];
      });
      return {
        inputs: {
          x,
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
    blockCase(dtype, 'silu', { numTokens: 1, width: 2 * unit, numNeurons: 23, choice: 'some' }),
    blockCase(dtype, 'silu', { numTokens: 1, width: 3 * unit, numNeurons: 9, numRows: 5, choice: 'slots' }),
    blockCase(dtype, 'relu', { numTokens: 2, width: unit, numNeurons: 71, choice: 'all', isContinued: true }),
    blockCase(dtype, 'silu', { numTokens: 5, width: 2 * unit, numNeurons: 37, choice: 'all' }),
    blockCase(dtype, 'silu', {
      ...{ numTokens: 17, width: unit, numNeurons: 40, numRows: 47 },
      ...{ choice: 'slots', isContinued: true },
    }),
  ];
});

/** Widths of a multiple of four blocks, which backends may interleave. */
const fourCases = (['q8_0', 'q4_0'] as const).flatMap((dtype) => [
  blockCase(dtype, 'silu', { numTokens: 1, width: 128, numNeurons: 37, choice: 'some' }),
  blockCase(dtype, 'relu', { numTokens: 3, width: 256, numNeurons: 41, choice: 'all', isContinued: true }),
  blockCase(dtype, 'silu', { numTokens: 4, width: 640, numNeurons: 35, numRows: 41, choice: 'slots' }),
  blockCase(dtype, 'silu', { numTokens: 17, width: 384, numNeurons: 38, choice: 'all' }),
]);

const kindCases = activationKinds.map((kind) =>
  blockCase('q8_0', kind, { numTokens: 2, width: 64, numNeurons: 40, choice: 'some' }),
);

const shapeCases = [
  { numTokens: 0, width: 32, numNeurons: 4, choice: 'all' },
  { numTokens: 1, width: 1, numNeurons: 1, choice: 'all' },
  { numTokens: 3, width: 33, numNeurons: 7, choice: 'none' },
  { numTokens: 3, width: 33, numNeurons: 7, choice: 'none', isContinued: true },
  { numTokens: 1, width: 17, numNeurons: 300, choice: 'some' },
  { numTokens: 3, width: 129, numNeurons: 40, choice: 'one' },
  { numTokens: 40, width: 67, numNeurons: 65, choice: 'some' },
].flatMap((shape) => [
  blockCase('f32', 'silu', shape as BlockShape),
  blockCase('f16', 'gelu-tanh', shape as BlockShape),
]);

export const sparseFeedForwardCases: readonly KernelCase[] = [...dtypeCases, ...fourCases, ...kindCases, ...shapeCases];
