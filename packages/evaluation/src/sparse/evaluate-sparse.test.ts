import { createWasmBackend } from '@winnow/backend-wasm';
import { demoModelUrl } from '@winnow/demo-model';
import { loadModel } from '@winnow/engine';
import { calibrate } from '@winnow/sparse-inference';
import { ArgumentError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { defaultText } from '../text/default-text.js';
import { evaluateSparse } from './evaluate-sparse.js';

test('predictors and divergence of a calibrated demo model', { timeout: 120_000 }, async () => {
  const backend = await createWasmBackend({ numThreads: 1 });
  try {
    await using dense = await loadModel(demoModelUrl, { trace: { feedForward: true }, context: 128, threads: 1 });
    const count = (text: string): number => dense.tokenizer.encode(text).length;
    const all = dense.encodePrompt(defaultText(2048, count));
    const samples = Array.from({ length: 12 }, (_, i) => all.slice(i * 64, (i + 1) * 64));
    const access = dense.feedForward as NonNullable<typeof dense.feedForward>;
    const exact = { recall: 1, cosine: 1 };
    const options = { backend, samples, predictor: 'gate-threshold', epochs: 0 } as const;
    const mild = await calibrate(access, { ...options, energyShare: 0.999, targetRecall: 0.99 });
    const hard = await calibrate(access, { ...options, targetSparsity: 0.95 });
    const tokens = all.slice(1600, 1696);
    const results = [];
    for (const sidecar of [mild, hard]) {
      await using sparse = await loadModel(demoModelUrl, {
        sparsity: { calibration: sidecar },
        context: 128,
        threads: 1,
      });
      results.push(await evaluateSparse({ dense, sparse, sidecar, backend, tokens, sampleTokens: 48 }));
      await expect(evaluateSparse({ dense: sparse, sparse, sidecar, backend, tokens })).rejects.toThrow(ArgumentError);
    }
    const [few, many] = results as [(typeof results)[0], (typeof results)[0]];
    expect(few.layers).toHaveLength(6);
    expect(few.logits.decode.divergence.mean).toBeLessThan(many.logits.decode.divergence.mean / 4);
    expect(few.logits.decode.pplRatio.mean).toBeLessThan(1.05);
    for (const [layer, report] of few.layers.entries()) {
      expect(report.numTokens).toBe(96);
      expect(report.recall).toBeGreaterThan(0.95);
      expect(report.recall).toBeLessThanOrEqual(exact.recall);
      expect(report.cosine).toBeGreaterThan(many.layers[layer]?.cosine as number);
    }
  } finally {
    await backend.dispose();
  }
});
