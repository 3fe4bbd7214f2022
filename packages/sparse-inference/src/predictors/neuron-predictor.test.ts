import { createWasmBackend } from '@winnow/backend-wasm';
import { createReferenceBackend, type Backend } from '@winnow/ops';
import { ArgumentError, ShapeError } from '@winnow/tensor';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { truePrediction } from '../../test/block-truth.js';
import { goldens, randomBlock, randomRow } from '../../test/blocks.js';
import { sparseLayer } from '../../test/sidecars.js';
import { PredictorScores } from '../calibration/predictor-scores.js';
import { predictorKinds, type LowRankEstimate } from '../sidecar/sidecar.js';
import { encodeMatrix } from '../sidecar/stored-matrix.js';
import { NeuronPredictor } from './neuron-predictor.js';

const { hiddenDim, ffnDim, rank, scale, x, estimates, scores } = goldens().product;
const numTokens = x.length / hiddenDim;
const states = Float32Array.from(x);
const estimateOf = (part: 'gate' | 'up'): LowRankEstimate => {
  const { p, q, bias } = estimates[part];
  const scaled = (codes: readonly number[]): Float32Array => Float32Array.from(codes, (code) => code * scale);
  return {
    p: encodeMatrix(scaled(p), rank, hiddenDim),
    q: encodeMatrix(scaled(q), ffnDim, rank),
    bias: Float32Array.from(bias),
  };
};
const tables = { kind: 'low-rank-product', rank, gate: estimateOf('gate'), up: estimateOf('up') } as const;
const productLayer = {
  ...{ layer: 0, hiddenDim, ffnDim, activation: 'silu' as const, isGated: true },
  ...{ contributionThreshold: 0, downNorms: new Float32Array(ffnDim) },
} as const;

/** f32 sums of 32 products of sums of 32 products, with magnitudes below 8: 64 roundings of 2^-24 each. */
const expectClose = (actual: Float32Array, expected: readonly number[]): void => {
  expect(actual).toHaveLength(expected.length);
  expected.forEach((score, i) =>
    expect(Math.abs(Math.abs(actual[i] as number) - score)).toBeLessThan(64 * 8 * 2 ** -24),
  );
};

let backends: Record<'reference' | 'wasm', Backend>;
beforeAll(async () => {
  backends = {
    reference: createReferenceBackend(),
    wasm: await createWasmBackend({ numThreads: 1, activations: 'f32' }),
  };
});
afterAll(() => Promise.all(Object.values(backends).map((backend) => backend.dispose())));

describe.each(['reference', 'wasm'] as const)('on %s', (name) => {
  test('scores of low-rank products equal those of NumPy, and select the neurons', async () => {
    const thresholds = new Float32Array(ffnDim).fill(0.5);
    const layer = { ...productLayer, predictor: { ...tables, thresholds } };
    await using predictor = await NeuronPredictor.create(layer, { backend: backends[name] });
    for (let t = 0; t < numTokens; t++) {
      const predicted = await predictor.predict(states.slice(t * hiddenDim, (t + 1) * hiddenDim));
      const expected = scores.slice(t * ffnDim, (t + 1) * ffnDim);
      expectClose(predicted.scores, expected);
      expect([...predicted.ids]).toEqual(expected.flatMap((score, id) => (score >= 0.5 ? [id] : [])));
    }
    const program = await PredictorScores.create(backends[name], tables, productLayer, 2);
    expectClose(await program.of(states), scores);
    await program.close();
  });

  test.each([
    ['silu', true],
    ['gelu-erf', false],
  ] as const)('every kind chooses what its rule says: %s, gated %s', async (activation, isGated) => {
    const weights = randomBlock({ activation, isGated, hiddenDim: 32, ffnDim: 40 }, 11);
    for (const kind of predictorKinds) {
      if (kind === 'low-rank-product' && !isGated) continue;
      const layer = sparseLayer(kind, 0, weights, 5);
      for (const oracle of [false, true]) {
        await using predictor = await NeuronPredictor.create(layer, { backend: backends[name], weights, oracle });
        expect(predictor.kind).toBe(oracle ? 'oracle' : kind);
        for (const seed of [1, 2, 3]) {
          const x = randomRow(32, seed);
          const [predicted, expected] = [await predictor.predict(x), truePrediction(layer, weights, x, oracle)];
          expect([...predicted.ids]).toEqual([...expected.ids]);
          expect(predicted.inputs).toEqual(expected.inputs);
          expect(predicted.ids.length).toBeGreaterThan(2);
          expect(predicted.ids.length).toBeLessThan(40);
        }
      }
    }
  });
});

test('predictors that compute parts of the FFN require its weights, and all require hidden states of their size', async () => {
  const weights = randomBlock({ activation: 'silu', isGated: true, hiddenDim: 32, ffnDim: 40 }, 11);
  const backend = backends.reference;
  for (const kind of ['gate-threshold', 'input-threshold'] as const) {
    await expect(NeuronPredictor.create(sparseLayer(kind, 0, weights, 5), { backend })).rejects.toThrow(
      /for gate|for input/,
    );
  }
  const layer = sparseLayer('low-rank', 0, weights, 5);
  await expect(NeuronPredictor.create(layer, { backend, oracle: true })).rejects.toThrow(ArgumentError);
  await using predictor = await NeuronPredictor.create(layer, { backend });
  await expect(predictor.predict(new Float32Array(31))).rejects.toThrow(ShapeError);
});
