/** `/metrics`: requests, and models with a calibration. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { FeedForwardMetrics } from '@winnow/engine';
import { createFolderBlobStore, openSqliteJobStore } from '@winnow/jobs/node';
import { repoRoot } from '@winnow/test-utils';
import { expect, test } from 'vitest';
import type { VectorModel } from '../src/index.js';
import { loadDemoModel, startServer } from './demo-server.js';

const steps = { numItems: 8, numSteps: 2, numBatches: 0, batchActiveRatio: 0 };
const feedForward = (activeRatio: number): FeedForwardMetrics => ({ layers: [{ layer: 0, ...steps, activeRatio }] });

test('skipped neurons of all models are one metric', async () => {
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

test('the backend of each model', async () => {
  await using model = await loadDemoModel();
  const levels = ['wasm', 'wasm+avx512'].map((backend) => ({ id: backend, model: { ...model, backend } }));
  const demo = await startServer({ models: levels });
  try {
    const metrics = await (await fetch(`${demo.url}/metrics`)).text();
    for (const { id } of levels) expect(metrics).toContain(`winnow_model_info{model="${id}",backend="${id}"} 1\n`);
  } finally {
    await demo.close();
  }
});

test('visited keys of a model that is loaded with them', async () => {
  await using model = await loadDemoModel({ trace: { visitedKeys: true } });
  const demo = await startServer({ models: [{ id: 'demo', model }] });
  try {
    await model.generate('Once', { maxTokens: 3, ignoreEos: true }).result();
    const metrics = await (await fetch(`${demo.url}/metrics`)).text();
    expect(metrics).toContain('winnow_attention_tokens_total{model="demo"} 2\n');
    const keysOf = (name: string): string | undefined =>
      new RegExp(`^winnow_attention_${name}_keys_total\\{model="demo",layer="0"\\} (\\d+)$`, 'm').exec(metrics)?.[1];
    expect(Number(keysOf('visible'))).toBeGreaterThan(0);
    expect(keysOf('visited')).toBe(keysOf('visible'));
  } finally {
    await demo.close();
  }
});

test('request durations are in the histogram and passed to the listener', async () => {
  await using model = await loadDemoModel();
  const durations: number[] = [];
  const demo = await startServer({
    models: [{ id: 'demo', model }],
    onRequest: ({ path, durationMs }) => void (path === '/v1/completions' && durations.push(durationMs)),
  });
  try {
    const body = JSON.stringify({ model: 'demo', prompt: 'Once', max_tokens: 4 });
    const headers = { 'content-type': 'application/json' };
    const answer = await fetch(`${demo.url}/v1/completions`, { method: 'POST', headers, body });
    expect(answer.status).toBe(200);
    await answer.text();
    const metrics = await (await fetch(`${demo.url}/metrics`)).text();
    const [, sum] = /^winnow_http_request_duration_seconds_sum\{route="\/v1\/completions"\} (.*)$/m.exec(metrics) ?? [];
    expect(Number(sum)).toBeGreaterThan(0);
    const first = /^winnow_time_to_first_token_seconds_sum\{.*\} (.*)$/m.exec(metrics)?.[1];
    expect(Number(first)).toBeGreaterThan(0);
    expect(Number(first)).toBeLessThanOrEqual(Number(sum)); // time to first token is less than the duration
    expect(metrics).toContain('winnow_drafted_tokens_total{model="demo"} 0\n');
    expect(metrics).toContain(`winnow_planned_bytes{model="demo",part="kv-cache"} ${model.plan.kvBytes}\n`);
    expect(durations).toEqual([expect.closeTo(1000 * Number(sum), 6)]);
    expect(Number(/^winnow_step_seconds_total\{model="demo"\} (.*)$/m.exec(metrics)?.[1])).toBeGreaterThan(0);
  } finally {
    await demo.close();
  }
});

test('every metric of the dashboard is reported', async () => {
  await using model = await loadDemoModel();
  const folder = mkdtempSync(join(tmpdir(), 'winnow-metrics-'));
  const jobs = await openSqliteJobStore(join(folder, 'jobs.db'));
  const demo = await startServer({
    models: [{ id: 'demo', model }],
    batches: { jobs, blobs: createFolderBlobStore(join(folder, 'blobs')) },
  });
  try {
    const metrics = await (await fetch(`${demo.url}/metrics`)).text();
    const types = new Map(
      [...metrics.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name = '', type = '']) => [name, type]),
    );
    const dashboard = readFileSync(join(repoRoot, 'docs', 'monitoring', 'grafana.json'), 'utf8');
    const named = new Set(dashboard.match(/\b(winnow|process)_[a-z_]+\b/g));
    const unknown = [...named].filter(
      (name) => !types.has(name) && types.get(name.replace(/_bucket$/, '')) !== 'histogram',
    );
    expect(named.size).toBeGreaterThan(10);
    expect(unknown).toEqual([]);
  } finally {
    await demo.close();
    await jobs.close();
    rmSync(folder, { recursive: true });
  }
});
