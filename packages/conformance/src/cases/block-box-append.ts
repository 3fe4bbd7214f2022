import type { CaseTensor, KernelCase } from '../kernel-case.js';
import {
  finalCounts,
  initialCounts,
  randomCaches,
  storedRow,
  summaryShapes,
  touchedParts,
} from './block-mean-append.js';
import type { SummaryShape } from './block-mean-append.js';
import { close, exact, numbersOf, randomTensor } from '../values.js';

/** Boxes are exact; a norm is summed in f64 and rounded once, like its margin and the square root. */
function boxCase(shape: SummaryShape): KernelCase {
  return {
    op: 'block-box-append',
    name: shape.name,
    dtypes: { keys: shape.keyDType, values: shape.valueDType },
    attributes: {},
    create(rng, arithmetic) {
      const caches = randomCaches(shape, rng);
      const { numBlocks, numParts, numKvHeads, headDim, valueDim } = shape;
      const counts = initialCounts(shape);
      const before = (dim: number[]): CaseTensor => randomTensor(rng, 'f32', [numBlocks, numParts, numKvHeads, ...dim]);
      const updated = { counts, keyMin: before([headDim]), keyMax: before([headDim]), valueNorms: before([]) };
      const [low, high, norms] = [updated.keyMin, updated.keyMax, updated.valueNorms].map(numbersOf);
      const [keys, values] = [numbersOf(caches.keys), numbersOf(caches.values)];
      for (const { index, count, known } of touchedParts(shape)) {
        for (let head = 0; head < numKvHeads; head++) {
          const row = index * numKvHeads + head;
          if (known === 0) {
            low.fill(Infinity, row * headDim, (row + 1) * headDim);
            high.fill(-Infinity, row * headDim, (row + 1) * headDim);
            norms[row] = 0;
          }
          for (let offset = known; offset < count; offset++) {
            for (const [i, x] of storedRow(keys, shape, index, head, offset, headDim).entries()) {
              low[row * headDim + i] = Math.min(low[row * headDim + i], x);
              high[row * headDim + i] = Math.max(high[row * headDim + i], x);
            }
            const norm = Math.hypot(...storedRow(values, shape, index, head, offset, valueDim));
            norms[row] = Math.max(norms[row], norm * (1 + 2 ** -18));
          }
        }
      }
      return {
        inputs: caches,
        updated,
        expected: {
          counts: { kind: 'bytes', bytes: finalCounts(shape, counts).bytes },
          keyMin: exact(low),
          keyMax: exact(high),
          valueNorms: close(norms.length, (index) => [norms[index], 4 * arithmetic.unit * Math.abs(norms[index])]),
        },
      };
    },
  };
}

export const blockBoxAppendCases: readonly KernelCase[] = summaryShapes.map(boxCase);
