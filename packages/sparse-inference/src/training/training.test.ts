import { createReferenceBackend } from '@winnow/ops';
import { createRng, ReleasedError } from '@winnow/tensor';
import fc from 'fast-check';
import { afterAll, describe, expect, test } from 'vitest';
import { goldens } from '../../test/blocks.js';
import { adamStep, createMoments } from './adam.js';
import { startFactors, type LowRankFactors } from './low-rank-factors.js';
import { MatrixProducts, transpose } from './matrix-products.js';
import { orthonormalizeRows } from './orthonormalize.js';
import { createTrainingState, trainStep, type TrainingBatch } from './train-low-rank.js';

const backend = createReferenceBackend();
const products = new MatrixProducts(backend);
afterAll(() => backend.dispose());

const floats = (values: readonly number[]): Float32Array => Float32Array.from(values);
const gaussian = (length: number, seed: number): Float32Array => {
  const rng = createRng(seed);
  return Float32Array.from({ length }, () => rng.nextGaussian());
};

test('matrix products of any size, repeatedly, and rejected after disposal', async () => {
  const own = new MatrixProducts(backend);
  for (const [numRows, numInputs, numOutputs] of [
    [3, 5, 2],
    [1, 1, 1],
    [3, 5, 2],
  ] as const) {
    const [x, w] = [gaussian(numRows * numInputs, numRows), gaussian(numOutputs * numInputs, 7)];
    const out = new Float32Array(numRows * numOutputs);
    await own.multiply(x, w, out, { numRows, numInputs, numOutputs });
    for (let t = 0; t < numRows; t++) {
      for (let o = 0; o < numOutputs; o++) {
        let sum = 0;
        for (let i = 0; i < numInputs; i++) sum += (x[t * numInputs + i] as number) * (w[o * numInputs + i] as number);
        expect(out[t * numOutputs + o]).toBe(Math.fround(sum));
      }
    }
  }
  await own.close();
  const one = new Float32Array(1);
  await expect(own.multiply(one, one, one, { numRows: 1, numInputs: 1, numOutputs: 1 })).rejects.toThrow(ReleasedError);
});

test('transposing twice gives the original', () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 70 }), fc.integer({ min: 1, max: 70 }), (rows, columns) => {
      const matrix = gaussian(rows * columns, rows);
      const transposed = transpose(matrix, rows, columns);
      expect(transposed[(columns - 1) * rows]).toBe(matrix[columns - 1]);
      expect(transpose(transposed, columns, rows)).toEqual(matrix);
    }),
  );
});

describe('orthonormalizeRows', () => {
  test.each([
    [4, 9, 0],
    [9, 9, 0],
    [12, 9, 0],
    [6, 9, 3],
    [5, 40, 5],
  ])('%i rows of %i, %i of them dependent', (numRows, length, numDependent) => {
    const matrix = gaussian(numRows * length, 3);
    for (let row = numRows - numDependent; row < numRows; row++) matrix.copyWithin(row * length, 0, length);
    orthonormalizeRows(matrix, numRows, length, createRng(1));
    const numFull = Math.min(numRows, length);
    for (let a = 0; a < numRows; a++) {
      for (let b = 0; b <= a; b++) {
        let dot = 0;
        for (let i = 0; i < length; i++) dot += (matrix[a * length + i] as number) * (matrix[b * length + i] as number);
        // entries are rounded to f32: each of `length` products has an error of 2^-23 times at most 1 / length on average
        expect(Math.abs(dot - Number(a === b && a < numFull))).toBeLessThan(1e-5);
      }
    }
  });
});

test('the initial factors are the best approximation of this rank', async () => {
  const { hiddenDim, ffnDim, rank, numRows, x, weight, bestMeanSquare } = goldens().lowRank;
  const start = { hiddenDim, ffnDim, rank, numRows, x: floats(x), weight: floats(weight), rng: createRng(5) };
  const { p, q, bias } = await startFactors(products, start);
  expect(bias.every((value) => value === 0)).toBe(true);
  // undoes the scaling of q that gives scores a mean square of 4
  const W = start.weight;
  const exact = new Float32Array(numRows * ffnDim);
  await products.multiply(start.x, W, exact, { numRows, numInputs: hiddenDim, numOutputs: ffnDim });
  const z = new Float32Array(numRows * rank);
  await products.multiply(start.x, p, z, { numRows, numInputs: hiddenDim, numOutputs: rank });
  const scores = new Float32Array(numRows * ffnDim);
  await products.multiply(z, q, scores, { numRows, numInputs: rank, numOutputs: ffnDim });
  let error = 0;
  for (let id = 0; id < ffnDim; id++) {
    let square = 0;
    for (let t = 0; t < numRows; t++) square += (exact[t * ffnDim + id] as number) ** 2;
    const scale = Math.sqrt(square / numRows) / 2;
    for (let t = 0; t < numRows; t++) {
      error += ((exact[t * ffnDim + id] as number) - scale * (scores[t * ffnDim + id] as number)) ** 2;
    }
  }
  const meanSquare = error / exact.length;
  // optimal by Eckart and Young; eight iterations leave little
  expect(meanSquare).toBeGreaterThan(bestMeanSquare * 0.999);
  expect(meanSquare).toBeLessThan(bestMeanSquare * 1.1);
  for (let k = 0; k < rank; k++) {
    let square = 0;
    for (let t = 0; t < numRows; t++) square += (z[t * rank + k] as number) ** 2 / numRows;
    expect(square).toBeCloseTo(1, 3);
  }
});

/** The loss that a training step reduces, in plain loops. */
function lossOf(
  { hiddenDim: E, rank, ffnDim: F, p, q, bias }: LowRankFactors,
  batch: TrainingBatch,
  w: number,
): number {
  const at = (array: Float32Array, index: number): number => array[index] as number;
  let loss = 0;
  for (let t = 0; t < batch.numRows; t++) {
    for (let id = 0; id < F; id++) {
      let score = at(bias, id);
      for (let k = 0; k < rank; k++) {
        for (let e = 0; e < E; e++) score += at(batch.x, t * E + e) * at(p, k * E + e) * at(q, id * rank + k);
      }
      loss += batch.labels[t * F + id] === 1 ? w * Math.log1p(Math.exp(-score)) : Math.log1p(Math.exp(score));
    }
  }
  return loss / (batch.numRows * F);
}

describe('training', () => {
  test('one step equals that of NumPy with gradients by finite differences', async () => {
    const { step } = goldens();
    const { numRows, hiddenDim, rank, ffnDim, positiveWeight, learningRate } = step;
    const factors = { hiddenDim, rank, ffnDim, p: floats(step.p), q: floats(step.q), bias: floats(step.bias) };
    const state = createTrainingState(factors);
    const batch = { numRows, x: floats(step.x), labels: Uint8Array.from(step.labels) };
    expect(lossOf(factors, batch, positiveWeight)).toBeCloseTo(step.loss, 5);
    await trainStep(products, state, batch, { positiveWeight, learningRate });
    for (const name of ['p', 'q', 'bias'] as const) {
      // the first step of Adam is the learning rate times the sign of the gradient, whatever its size
      step.after[name].forEach((expected, i) => expect(factors[name][i]).toBeCloseTo(expected, 4));
    }
    expect(state.numSteps).toBe(1);
  });

  test('several steps of Adam as published', () => {
    const parameters = Float32Array.of(1, -2);
    const moments = createMoments(2);
    let [m, v, x] = [0, 0, 1];
    for (let step = 1; step <= 20; step++) {
      const g = 2 * x; // gradient of x^2
      adamStep(parameters, Float32Array.of(g, 0), moments, step, 0.1);
      m = 0.9 * m + 0.1 * g;
      v = 0.999 * v + 0.001 * g * g;
      x -= (0.1 * (m / (1 - 0.9 ** step))) / (Math.sqrt(v / (1 - 0.999 ** step)) + 1e-8);
      expect(parameters[0]).toBeCloseTo(x, 4);
    }
    expect(parameters[1]).toBe(-2);
  });

  test('the loss of a separable problem falls', async () => {
    const [hiddenDim, rank, ffnDim, numRows] = [8, 4, 12, 64];
    const x = gaussian(numRows * hiddenDim, 1);
    const labels = Uint8Array.from({ length: numRows * ffnDim }, (_, i) =>
      Number((x[Math.floor(i / ffnDim) * hiddenDim + (i % 4)] as number) > 0.5),
    );
    const bias = new Float32Array(ffnDim);
    const factors = { hiddenDim, rank, ffnDim, p: gaussian(rank * hiddenDim, 2), q: gaussian(ffnDim * rank, 3), bias };
    const state = createTrainingState(factors);
    const batch = { numRows, x, labels };
    const before = lossOf(factors, batch, 1);
    for (let i = 0; i < 300; i++) await trainStep(products, state, batch, { positiveWeight: 1, learningRate: 0.03 });
    expect(lossOf(factors, batch, 1)).toBeLessThan(before / 10);
  });
});
