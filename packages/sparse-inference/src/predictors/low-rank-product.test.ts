import { createWasmBackend } from '@winnow/backend-wasm';
import { createReferenceBackend, type Backend } from '@winnow/ops';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { goldens } from '../../test/blocks.js';
import { createPredictorScores } from '../calibration/predictor-scores.js';
import type { LowRankEstimate } from '../sidecar/sidecar.js';
import { encodeMatrix } from '../sidecar/stored-matrix.js';
import { createLowRankProductPredictor } from './neuron-predictor.js';

const { hiddenDim, ffnDim, rank, scale, x, guesses, scores } = goldens().product;
const numTokens = x.length / hiddenDim;
const states = Float32Array.from(x);
const estimateOf = (part: 'gate' | 'up'): LowRankEstimate => {
  const { p, q, bias } = guesses[part];
  const scaled = (codes: readonly number[]): Float32Array => Float32Array.from(codes, (code) => code * scale);
  return {
    p: encodeMatrix(scaled(p), rank, hiddenDim),
    q: encodeMatrix(scaled(q), ffnDim, rank),
    bias: Float32Array.from(bias),
  };
};
const tables = { kind: 'low-rank-product', rank, gate: estimateOf('gate'), up: estimateOf('up') } as const;

/** Sums of 32 products of 32 products in f32, of magnitudes below 8: 64 roundings of 2^-24 of that. */
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

test('scores on plain arrays are those of numpy, and neurons are chosen by them', () => {
  const thresholds = new Float32Array(ffnDim).fill(0.5);
  const predictor = createLowRankProductPredictor({ ...tables, thresholds }, 'silu');
  for (let t = 0; t < numTokens; t++) {
    const predicted = predictor.predict(states.slice(t * hiddenDim, (t + 1) * hiddenDim));
    const expected = scores.slice(t * ffnDim, (t + 1) * ffnDim);
    expectClose(predicted.scores, expected);
    expect([...predicted.ids]).toEqual(expected.flatMap((score, id) => (score >= 0.5 ? [id] : [])));
  }
});

test.each(['reference', 'wasm'] as const)('scores of programs on %s are those of numpy', async (name) => {
  const program = await createPredictorScores(backends[name], tables, { hiddenDim, ffnDim, activation: 'silu' }, 2);
  expectClose(await program.scores(states, numTokens), scores);
  await program.dispose();
});
