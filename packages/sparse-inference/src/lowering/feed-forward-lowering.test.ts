import { createWasmBackend } from '@winnow/backend-wasm';
import { createReferenceBackend, type ActivationKind, type Backend, type ProgramBuilder } from '@winnow/ops';
import { ShapeError, type DType } from '@winnow/tensor';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { truePrediction, trueSparseOutput } from '../../test/block-truth.js';
import { randomBlock, randomRow } from '../../test/blocks.js';
import { runBlock } from '../../test/run-block.js';
import { sidecarOf, sparseLayer } from '../../test/sidecars.js';
import type { PredictorKind, Sidecar } from '../sidecar/sidecar.js';
import { createFeedForwardLowering, predictorWeights } from './feed-forward-lowering.js';
import { breakEvenOf, runsDense, sparseMatrices, type MaxActiveRatio } from './sparse-matrices.js';

/** Break-even ratios of an imaginary backend, different for every dtype and layout. */
const ratios: Partial<Record<DType, number>> = { f32: 0.7, f16: 0.44, q8_0: 0.65, q4_0: 0.54 };
const breakEvenRatio: Backend['breakEvenRatio'] = (dtype, layout) =>
  (ratios[dtype] ?? 0.2) - (layout === 'separate' ? 0.1 : 0);

const kinds: readonly PredictorKind[] = ['low-rank', 'gate-threshold', 'input-threshold'];
const gatedKinds: readonly PredictorKind[] = [...kinds, 'low-rank-product'];
const shapes: readonly { readonly activation: ActivationKind; readonly isGated: boolean }[] = [
  { activation: 'relu', isGated: true },
  { activation: 'silu', isGated: true },
  { activation: 'gelu-erf', isGated: false },
];
const [hiddenDim, ffnDim] = [32, 40];

let backends: Record<'reference' | 'wasm', Backend>;
beforeAll(async () => {
  backends = {
    reference: createReferenceBackend(),
    wasm: await createWasmBackend({ numThreads: 1, activations: 'f32' }),
  };
});
afterAll(() => Promise.all(Object.values(backends).map((backend) => backend.dispose())));

function expectClose(actual: Float32Array, expected: Float32Array): void {
  // sums of f32 products in another order: n * 2^-24 of the sum of magnitudes, which is a few times the magnitude of the result
  const size = Math.max(1, ...expected.map(Math.abs));
  expected.forEach((y, i) => expect(Math.abs((actual[i] as number) - y)).toBeLessThan(size * 1e-4));
}

describe.each(['reference', 'wasm'] as const)('on %s', (name) => {
  describe.each(shapes)('$activation, gated $isGated', (shape) => {
    const weights = randomBlock({ ...shape, hiddenDim, ffnDim }, 11);

    const own = shape.isGated ? gatedKinds : kinds;

    test.each(own)('%s computes the neurons that its predictor selects', async (kind) => {
      const layer = sparseLayer(kind, 0, weights, 5);
      const sidecar = sidecarOf([layer]);
      for (const seed of [1, 2, 3]) {
        const x = randomRow(hiddenDim, seed);
        const chosen = truePrediction(layer, weights, x);
        const write = createFeedForwardLowering(sidecar, { maxRatio: 1 });
        const { y, ids } = await runBlock(backends[name], weights, write, predictorWeights(sidecar), x);
        expect([...ids]).toEqual([...chosen.ids]);
        expect(ids.length).toBeGreaterThan(2);
        expect(ids.length).toBeLessThan(ffnDim);
        expectClose(y, trueSparseOutput(weights, x, chosen));
      }
    });

    test('with all neurons active it equals the dense FFN', async () => {
      const x = randomRow(4 * hiddenDim, 9);
      const dense = await runBlock(backends[name], weights, (_b, request) => request.lowerDense(), new Map(), x);
      for (const kind of own) {
        const layer = sparseLayer(kind, 0, weights, 6);
        layer.predictor.thresholds.fill(-1e30);
        if (layer.predictor.kind === 'input-threshold') layer.predictor.inputThresholds.fill(0);
        const sidecar = sidecarOf([layer]);
        const sparse = await runBlock(
          backends[name],
          weights,
          createFeedForwardLowering(sidecar),
          predictorWeights(sidecar),
          x,
        );
        expect(sparse.ids.length).toBe(ffnDim);
        expectClose(sparse.y, dense.y);
      }
    });

    test('the oracle', async () => {
      const layer = sparseLayer('low-rank', 0, weights, 5);
      const sidecar = sidecarOf([layer]);
      const x = randomRow(hiddenDim, 4);
      const write = createFeedForwardLowering(sidecar, { oracle: true, maxRatio: 1 });
      const { y, ids } = await runBlock(backends[name], weights, write, predictorWeights(sidecar, { oracle: true }), x);
      const chosen = truePrediction(layer, weights, x, true);
      expect([...ids]).toEqual([...chosen.ids]);
      expectClose(y, trueSparseOutput(weights, x, chosen));
    });
  });
});

const weights = randomBlock({ activation: 'relu', isGated: true, hiddenDim, ffnDim }, 11);
const run = (write: Parameters<typeof runBlock>[2], tables: Parameters<typeof runBlock>[3], options = {}) =>
  runBlock(backends.reference, weights, write, tables, randomRow(2 * hiddenDim, 8), options);

describe('the lowering', () => {
  test('requests only matrices that it reads', async () => {
    const of = async (kind: PredictorKind): Promise<readonly string[]> => {
      const sidecar = sidecarOf([sparseLayer(kind, 0, weights, 5)]);
      return (await run(createFeedForwardLowering(sidecar), predictorWeights(sidecar))).weights.toSorted();
    };
    expect(await of('low-rank')).toEqual([
      'down.rows',
      'gate',
      'sparse.0.p',
      'sparse.0.q',
      'sparse.0.thresholds',
      'up',
    ]);
    expect(await of('low-rank-product')).toEqual([
      ...['down.rows', 'gate', 'sparse.0.gate.p', 'sparse.0.gate.q', 'sparse.0.thresholds'],
      ...['sparse.0.up.bias', 'sparse.0.up.p', 'sparse.0.up.q', 'up'],
    ]);
    expect(await of('gate-threshold')).toEqual(['down.rows', 'gate', 'sparse.0.thresholds', 'up']);
    expect(await of('input-threshold')).toEqual([
      ...['down.rows', 'gate.columns', 'sparse.0.inputs', 'sparse.0.thresholds', 'up.columns'],
    ]);
  });

  test('reports which matrices are read row by row', () => {
    const two = randomBlock({ activation: 'relu', isGated: false, hiddenDim, ffnDim }, 1);
    const sidecar = sidecarOf([
      ...gatedKinds.map((kind, layer) => sparseLayer(kind, layer, weights, 1)),
      ...kinds.map((kind, i) => sparseLayer(kind, 4 + i, two, 1)),
    ]);
    const all = ['gate', 'up', 'down'];
    expect(Array.from({ length: 8 }, (_, layer) => sparseMatrices(sidecar, layer))).toEqual([
      ...[all, ['up', 'down'], ['down'], all, ['up', 'down'], ['down'], ['down'], []],
    ]);
  });

  test('runs layers dense that are missing in the sidecar', async () => {
    const sidecar = sidecarOf([sparseLayer('low-rank', 7, weights, 5)]);
    expect((await run(createFeedForwardLowering(sidecar), new Map())).ops).not.toContain('active-neurons');
  });
});

const active = (kind: PredictorKind, activeRatio: number, inputRatio = 1): Sidecar => {
  const layer = sparseLayer(kind, 0, weights, 5);
  const sizes = { denseBytes: 1000, sparseBytes: 1000 * activeRatio }; // 2 or 3 bits per weight
  return sidecarOf([{ ...layer, report: { ...layer.report, ...sizes, activeRatio, inputRatio } }]);
};
const limit = breakEvenRatio('q4_0', 'interleaved');

describe('layers above their break-even ratio', () => {
  test('run dense, with the matrices of dense FFNs', async () => {
    for (const kind of gatedKinds) {
      const sidecar = active(kind, limit + 0.01);
      const write = createFeedForwardLowering(sidecar, { maxRatio: breakEvenRatio });
      expect(write.denseLayers).toEqual([0]);
      expect(write.matrices(0)).toEqual([]);
      const { weights: names, ops } = await run(write, predictorWeights(sidecar));
      expect(names.toSorted()).toEqual(['down', 'gate', 'up']);
      expect(ops).not.toContain('active-neurons');
      const all = createFeedForwardLowering(sidecar, { maxRatio: 1 });
      expect(all.denseLayers).toEqual([]);
      expect(all.matrices(0)).not.toEqual([]);
      expect((await run(all, predictorWeights(sidecar))).ops).toContain('active-neurons');
    }
    expect(createFeedForwardLowering(active('low-rank', limit), { maxRatio: breakEvenRatio }).denseLayers).toEqual([]);
  });

  test('predictor tables count towards the time, unless a limit is given', () => {
    const isDense = (kind: PredictorKind, activeRatio: number, maxRatio: MaxActiveRatio = breakEvenRatio): boolean => {
      const layer = sparseLayer(kind, 0, weights, 5);
      // tables of a tenth of the FFN
      const report = { ...layer.report, activeRatio, denseBytes: 1000, sparseBytes: 1000 * activeRatio + 100 };
      return runsDense({ ...layer, report }, maxRatio);
    };
    const [below, above] = [0.9 * limit - 0.001, 0.9 * limit + 0.001];
    for (const kind of ['low-rank', 'low-rank-product'] as const) {
      expect([below, above].map((ratio) => isDense(kind, ratio))).toEqual([false, true]);
      expect(isDense(kind, above, limit)).toBe(false);
      expect(isDense(kind, 1, 1)).toBe(false);
    }
    // the gate is read beyond the active share; it takes the same time in a dense FFN
    const ofRows = breakEvenRatio('q4_0', 'separate');
    expect([ofRows, ofRows + 0.001].map((ratio) => isDense('gate-threshold', ratio))).toEqual([false, true]);
  });
});

describe('break-even ratios', () => {
  test('depend on the row dtypes, or else on the bits per weight', () => {
    const numWeights = (weights.gate === undefined ? 2 : 3) * hiddenDim * ffnDim;
    const types = { q4_0: 4.5, q8_0: 8.5, f16: 16, f32: 32 };
    for (const [type, bits] of Object.entries(types) as [keyof typeof types, number][]) {
      for (const kind of ['low-rank', 'gate-threshold'] as const) {
        const layer = sparseLayer(kind, 0, weights, 5);
        const denseBytes = (bits / 8) * numWeights;
        const report = { ...layer.report, denseBytes, sparseBytes: layer.report.activeRatio * denseBytes };
        const layout = kind === 'low-rank' ? 'interleaved' : 'separate';
        expect(breakEvenOf({ ...layer, report }, breakEvenRatio)).toBe(breakEvenRatio(type, layout));
        for (const areInterleaved of [false, true]) {
          const rows = { dtypes: ['q8_0', 'q4_0'] as const, areInterleaved };
          const expected = breakEvenRatio('q4_0', areInterleaved ? layout : 'separate');
          expect(breakEvenOf({ ...layer, report, rows }, breakEvenRatio)).toBe(expected);
        }
      }
    }
  });

  test('of inputs and of neurons, weighted by their matrices', () => {
    const isDense = (inputRatio: number): boolean =>
      createFeedForwardLowering(active('input-threshold', 0.3, inputRatio), { maxRatio: 0.5 }).denseLayers.length > 0;
    expect([0.59, 0.61].map(isDense)).toEqual([false, true]);
  });

  test('never make an oracle dense', () => {
    expect(createFeedForwardLowering(active('low-rank', 0.9), { oracle: true }).matrices(0)).toEqual(['down']);
  });

  test('steps of several tokens compute every neuron, steps of one token the predicted ones, unless maxRatio is given', async () => {
    const layer = sparseLayer('low-rank', 0, weights, 5);
    // three quarters of the neurons are active regardless of scores
    const thresholds = layer.predictor.thresholds.map((value, f) => (f % 4 === 0 ? value : -1e9));
    const sidecar = sidecarOf([{ ...layer, predictor: { ...layer.predictor, thresholds } }]);
    const tables = predictorWeights(sidecar);
    const numActive = async (numTokens: number, maxRatio: MaxActiveRatio = breakEvenRatio): Promise<number> => {
      const write = createFeedForwardLowering(sidecar, { maxRatio });
      return (await runBlock(backends.reference, weights, write, tables, randomRow(numTokens * hiddenDim, 64))).ids
        .length;
    };
    const one = await numActive(1);
    expect(one).toBeGreaterThan(limit * ffnDim);
    expect(one).toBeLessThan(ffnDim);
    expect(await numActive(2)).toBe(ffnDim);
    expect(await numActive(2, 1)).toBeLessThan(ffnDim);
    expect(await numActive(1, 0.1)).toBe(ffnDim);
  });
});

describe('requests', () => {
  test('adds up the passes of a request', async () => {
    const sidecar = sidecarOf([sparseLayer('low-rank', 0, weights, 5)]);
    const [write, tables] = [createFeedForwardLowering(sidecar, { maxRatio: 1 }), predictorWeights(sidecar)];
    const once = await run(write, tables);
    const twice = await run(write, tables, {
      passes: (_b: ProgramBuilder, ids: never, count: never) => [1, 2].map(() => ({ ids, rows: ids, count })),
    });
    expect(twice.y).toEqual(once.y.map((value) => 2 * value));
  });

  test('computes inputs densely where a request lacks the columns', async () => {
    const sidecar = sidecarOf([sparseLayer('input-threshold', 0, weights, 5)]);
    const { ops } = await run(createFeedForwardLowering(sidecar), predictorWeights(sidecar), { hasColumns: false });
    expect(ops.filter((op) => op === 'matmul')).toHaveLength(2);
    expect(ops.filter((op) => op === 'active-neurons')).toHaveLength(1);
  });

  test.each(['low-rank', 'low-rank-product'] as const)(
    '%s predicts a layer from the hidden state of another',
    async (kind) => {
      const layers = [sparseLayer(kind, 0, weights, 5), sparseLayer('gate-threshold', 1, weights, 6)];
      const sidecar = sidecarOf(layers);
      const write = createFeedForwardLowering(sidecar, { maxRatio: 1 });
      const x = randomRow(hiddenDim, 12);
      let isUnknown = false;
      const { ids } = await runBlock(
        backends.reference,
        weights,
        (b, request) => {
          isUnknown = write.predict(b, 1, request.x) === undefined;
          const predicted = write.predict(b, 0, request.x);
          if (predicted !== undefined) for (const _ of request.passes?.(predicted.ids, predicted.count) ?? []) break;
          return request.x;
        },
        predictorWeights(sidecar),
        x,
      );
      expect(isUnknown).toBe(true);
      expect([...ids]).toEqual([...truePrediction(layers[0] as (typeof layers)[0], weights, x).ids]);
    },
  );

  test('rejects an FFN of another size', async () => {
    const other = randomBlock({ activation: 'relu', isGated: true, hiddenDim, ffnDim: 41 }, 1);
    const sidecar = sidecarOf([sparseLayer('low-rank', 0, other, 5)]);
    await expect(run(createFeedForwardLowering(sidecar), predictorWeights(sidecar))).rejects.toThrow(ShapeError);
  });
});
