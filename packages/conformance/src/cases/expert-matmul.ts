import { weightDTypes } from '@winnow/ops';
import { dtypeInfo, type DType } from '@winnow/tensor';
import type { KernelCase } from '../kernel-case.js';
import { close, gaussian, ints, numbersOf, randomTensor } from '../values.js';

interface ExpertShape {
  readonly numTokens: number;
  readonly numExperts: number;
  readonly numChoices: number;
  readonly numInputs: number;
  readonly numOutputs: number;
}

/**
 * @param isShared whether the experts of a token share one row of x
 * @param numSlots number of experts with a matrix, in permuted order; default: all, in order
 */
function expertCase(
  dtype: DType,
  shape: ExpertShape,
  isShared: boolean,
  choice = 'spread',
  numSlots?: number,
): KernelCase {
  const { numTokens, numExperts, numChoices, numInputs, numOutputs } = shape;
  return {
    op: 'expert-matmul',
    name:
      `${dtype}, ${numTokens} x ${numInputs} -> ${numChoices} of ${numExperts} x ${numOutputs}` +
      `${isShared ? ', shared rows' : ''}${choice === 'spread' ? '' : `, ${choice}`}` +
      `${numSlots === undefined ? '' : `, ${numSlots} slots`}`,
    dtypes: { weight: dtype },
    attributes: {},
    // as for matmul: n + 1 roundings of the sum of magnitudes; decoding a block takes 2 more
    create(rng, { unit, tiny }) {
      const rowsPerToken = isShared ? 1 : numChoices;
      const x = gaussian(rng, [numTokens, rowsPerToken, numInputs], 1, 0);
      const weight = randomTensor(rng, dtype, [numSlots ?? numExperts, numOutputs, numInputs]);
      const places = Array.from({ length: numExperts }, (_, place) => place);
      const slots = Array.from({ length: numExperts }, () => {
        const [place] = places.splice(rng.nextInt(places.length), 1);
        return numSlots === undefined || place < numSlots ? place : -1;
      });
      const slotOf = (expert: number): number => (numSlots === undefined ? expert : slots[expert]);
      const ids = Array.from({ length: numTokens }, () => {
        const free = Array.from({ length: numExperts }, (_, expert) => expert);
        if (choice === 'crowded') return free.slice(numExperts - numChoices); // all tokens select the last ones
        return Array.from({ length: numChoices }, () => free.splice(rng.nextInt(free.length), 1)[0]);
      }).flat();
      const [xs, ws] = [numbersOf(x), numbersOf(weight)];
      const y = close(numTokens * numChoices * numOutputs, (index) => {
        const [pair, o] = [Math.floor(index / numOutputs), index % numOutputs];
        const source = (isShared ? Math.floor(pair / numChoices) : pair) * numInputs;
        const slot = slotOf(ids[pair]);
        if (slot < 0) return [0, 0];
        const row = (slot * numOutputs + o) * numInputs;
        let sum = 0;
        let magnitude = 0;
        for (let i = numInputs - 1; i >= 0; i--) {
          const term = xs[source + i] * ws[row + i];
          sum += term;
          magnitude += Math.abs(term);
        }
        const numRoundings = numInputs + 2 + (dtypeInfo(dtype).isQuantized ? 2 : 0);
        return [sum, numRoundings * (unit * magnitude + tiny)];
      });
      const inputs = { x, ids: ints([numTokens, numChoices], ids, 0), weight };
      return {
        inputs: numSlots === undefined ? inputs : { ...inputs, slots: ints([numExperts], slots) },
        expected: { y },
      };
    },
  };
}

const dtypeCases = weightDTypes.flatMap((dtype) => {
  const unit = Math.max(dtypeInfo(dtype).blockSize, 32);
  const few = { numTokens: 1, numExperts: 4, numChoices: 2, numInputs: unit, numOutputs: 5 };
  return [
    expertCase(dtype, few, true),
    expertCase(dtype, { ...few, numInputs: 2 * unit, numOutputs: 8 }, false),
    expertCase(dtype, { numTokens: 13, numExperts: 3, numChoices: 2, numInputs: unit, numOutputs: 9 }, true),
    expertCase(dtype, { numTokens: 9, numExperts: 5, numChoices: 1, numInputs: 2 * unit, numOutputs: 34 }, false),
  ];
});

const shapeCases = [
  { numTokens: 0, numExperts: 3, numChoices: 2, numInputs: 32, numOutputs: 4 },
  { numTokens: 1, numExperts: 1, numChoices: 1, numInputs: 1, numOutputs: 1 },
  { numTokens: 3, numExperts: 8, numChoices: 8, numInputs: 33, numOutputs: 7 },
  { numTokens: 7, numExperts: 60, numChoices: 4, numInputs: 17, numOutputs: 3 },
  { numTokens: 40, numExperts: 4, numChoices: 2, numInputs: 67, numOutputs: 35 },
  { numTokens: 40, numExperts: 16, numChoices: 3, numInputs: 129, numOutputs: 65 },
  { numTokens: 300, numExperts: 3, numChoices: 2, numInputs: 20, numOutputs: 4 },
  { numTokens: 5, numExperts: 3, numChoices: 2, numInputs: 1023, numOutputs: 2 },
].flatMap((shape) => [
  expertCase('f32', shape, true),
  expertCase('f32', shape, false),
  expertCase('f32', shape, true, 'crowded'),
  expertCase('f16', shape, false, 'crowded'),
]);

const slotCases = [
  { shape: { numTokens: 1, numExperts: 6, numChoices: 3, numInputs: 33, numOutputs: 7 }, numSlots: 3 },
  { shape: { numTokens: 40, numExperts: 5, numChoices: 2, numInputs: 64, numOutputs: 9 }, numSlots: 2 },
  { shape: { numTokens: 12, numExperts: 4, numChoices: 4, numInputs: 32, numOutputs: 40 }, numSlots: 4 },
  { shape: { numTokens: 3, numExperts: 4, numChoices: 1, numInputs: 32, numOutputs: 5 }, numSlots: 1 },
].flatMap(({ shape, numSlots }) => [
  expertCase('f32', shape, true, 'spread', numSlots),
  expertCase('f16', shape, false, 'spread', numSlots),
  ...(shape.numInputs % 32 === 0 ? [expertCase('q8_0', shape, false, 'crowded', numSlots)] : []),
]);

export const expertMatmulCases: readonly KernelCase[] = [
  ...new Map([...dtypeCases, ...shapeCases, ...slotCases].map((c) => [c.name, c])).values(),
];
