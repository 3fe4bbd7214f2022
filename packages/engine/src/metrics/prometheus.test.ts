import { expect, test } from 'vitest';
import type { FeedForwardMetrics } from './feed-forward.js';
import { formatPrometheus, formatPrometheusModels } from './prometheus.js';

const counters = {
  ...{ requests: 10, hits: 7, prefetchHits: 2, misses: 3, warmHits: 1, coldReads: 2, evictions: 4, warmEvictions: 0 },
  ...{ prefetches: 3, prefetchesRefused: 0, prefetchesDropped: 1 },
};
const feedForward: FeedForwardMetrics = {
  layers: [
    { layer: 0, numItems: 8, numSteps: 4, activeRatio: 0.25, numBatches: 0, batchActiveRatio: 0 },
    {
      ...{ layer: 3, numItems: 8, numSteps: 0, activeRatio: 0, numBatches: 1, batchActiveRatio: 0.5 },
      profile: { layerMs: 1500, predictorMs: 250 },
      tiers: { ...counters, numSlots: 5, numPasses: 2, waitedMs: 125 },
    },
  ],
  cache: {
    ...counters,
    layers: [counters],
    ...{ numReads: 6, bytesRead: 4096, usefulBytesRead: 4000, failedReads: 0 },
    bytes: { hot: 100, warm: 20, cold: 0, staging: 30 },
  },
  waitedMs: 125,
  readMs: 500,
};

test('one sample per layer that reports it, with the labels of the caller', () => {
  const text = formatPrometheus({ feedForward }, { model: 'a "b"\\' });
  const model = 'model="a \\"b\\"\\\\"';
  expect(text.split('\n')).toEqual(
    expect.arrayContaining([
      '# TYPE winnow_ffn_active_ratio gauge',
      `winnow_ffn_active_ratio{${model},layer="0"} 0.25`,
      `winnow_ffn_batch_active_ratio{${model},layer="3"} 0.5`,
      '# TYPE winnow_ffn_misses_total counter',
      `winnow_ffn_misses_total{${model},layer="3"} 3`,
      `winnow_layer_seconds_total{${model},layer="3"} 1.5`,
      `winnow_ffn_predictor_seconds_total{${model},layer="3"} 0.25`,
      `winnow_ffn_read_bytes_total{${model}} 4096`,
      `winnow_ffn_read_seconds_total{${model}} 0.5`,
      `winnow_ffn_tier_bytes{${model},tier="hot"} 100`,
    ]),
  );
  expect(text).not.toMatch(/ffn_active_ratio\{[^}]*layer="3"/);
  // every line is a comment or a sample
  for (const line of text.trimEnd().split('\n')) {
    expect(line).toMatch(/^(# (HELP|TYPE) winnow_[a-z_]+ .+|winnow_[a-z_]+(\{.*\})? -?[\d.e+-]+)$/);
  }
  expect(formatPrometheus({})).toBe('');
});

test('token counts and step time', () => {
  const counts = {
    numSteps: 3,
    numSharedSteps: 0,
    numTokens: 10,
    numPreemptions: 0,
    numDeviceLosses: 0,
    numWaiting: 0,
  };
  const text = formatPrometheus({ steps: { ...counts, stepMs: 2500, tokensPerSecond: 4 } });
  expect(text).toContain('winnow_tokens_total 10\n');
  expect(text).toContain('winnow_step_seconds_total 2.5\n');
  expect(text).toContain('winnow_tokens_per_second 4\n');
});

test('the planned memory by part', () => {
  const plan = { weightsBytes: 10, kvBytes: 20, activationBytes: 30 };
  expect(formatPrometheus({ plan })).toMatch(
    /^winnow_planned_bytes\{part="weights"\} 10\n.*"kv-cache"\} 20\n.*"activations"\} 30\n/m,
  );
});

test('samples of several models are grouped by name', () => {
  const models = ['a', 'b'].map((model) => ({ metrics: { feedForward }, labels: { model } }));
  const lines = formatPrometheusModels(models).trimEnd().split('\n');
  const types = lines.filter((line) => line.startsWith('# TYPE'));
  expect(new Set(types).size).toBe(types.length);
  const at = lines.indexOf('# TYPE winnow_ffn_active_ratio gauge');
  expect(lines.slice(at + 1, at + 3)).toEqual(
    ['a', 'b'].map((model) => `winnow_ffn_active_ratio{model="${model}",layer="0"} 0.25`),
  );
});
