/** What models with a calibration count, on `/metrics`. */
import type { FeedForwardMetrics } from '@winnow/engine';
import { expect, test } from 'vitest';
import type { VectorModel } from '../src/index.js';
import { loadDemoModel, startServer } from './demo-server.js';

const steps = { numItems: 8, numSteps: 2, numBatches: 0, batchActiveRatio: 0 };
const feedForward = (activeRatio: number): FeedForwardMetrics => ({ layers: [{ layer: 0, ...steps, activeRatio }] });

test('skipped neurons of all models stand together', async () => {
  await using model = await loadDemoModel();
  const { name, backend, contextSize } = model;
  const embedder: VectorModel = {
    ...{ name, backend, contextSize, dimensions: 4 },
    embedTexts: () => Promise.reject(new Error('not asked')),
  };
  const served = [0.25, 0.5].map((ratio) => ({
    id: `skips-${ratio}`,
    model: { ...model, metrics: () => ({ ...model.metrics(), feedForward: feedForward(ratio) }) },
  }));
  const demo = await startServer({
    models: [{ id: 'dense', model }, ...served],
    embeddingModels: [
      { id: 'embeds', model: embedder },
      { id: 'embeds-sparse', model: { ...embedder, feedForwardMetrics: () => feedForward(0.75) } },
    ],
  });
  try {
    const lines = (await (await fetch(`${demo.url}/metrics`)).text()).split('\n');
    const at = lines.indexOf('# TYPE winnow_ffn_active_ratio gauge');
    expect(lines.slice(at + 1).filter((line) => line !== '')).toEqual([
      'winnow_ffn_active_ratio{model="skips-0.25",layer="0"} 0.25',
      'winnow_ffn_active_ratio{model="skips-0.5",layer="0"} 0.5',
      'winnow_ffn_active_ratio{model="embeds-sparse",layer="0"} 0.75',
    ]);
  } finally {
    await demo.close();
  }
});
