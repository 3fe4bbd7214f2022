/** The whole evaluation on the demo model, at the smallest meaningful sizes. */
import { demoModelUrl } from '@winnow/demo-model';
import { loadModel } from '@winnow/engine';
import { expect, it } from 'vitest';
import {
  baseConfiguration,
  createConfigurations,
  defaultText,
  evaluateModel,
  evaluationShards,
  formatEvaluation,
  mergeEvaluations,
  openOptionsOf,
  type EvaluationReport,
  type OpenModel,
} from '../src/index.js';

const open: OpenModel = ({ backend: _default, ...options }) => loadModel(demoModelUrl, options);

it('measures valid configurations, and reports invalid ones', async () => {
  const model = await open(openOptionsOf(baseConfiguration, 64));
  const text = defaultText(64, (part) => model.tokenizer.encode(part, { addSpecialTokens: false }).length);
  const tokens = model.encodePrompt(text).slice(0, 64);
  await model.dispose();
  const policies = ['dense', 'streaming:window=8', 'subquadratic:window=8,block=2000', 'oracle-topk:k=64'];
  const seen: string[] = [];
  const report = await evaluateModel({
    open,
    configurations: createConfigurations(policies, []),
    parts: ['logits', 'attention', 'tasks'],
    tokens,
    attentionTokens: 64,
    layers: [0, 5],
    tasks: ['passkey'],
    taskForm: 'codes',
    taskLengths: [64],
    numCases: 1,
    speedLengths: [],
    seed: 1,
    onProgress: (what) => seen.push(what),
  });
  expect(seen).toEqual(['base', ...policies]);
  const [dense, streaming, refused, everything] = report.configurations;
  expect(dense.logits.prefill?.divergence.mean).toBe(0);
  expect(dense.tasks[0].scores).toEqual([1, 1, 1]);
  expect(streaming.logits.decode?.divergence.mean).toBeGreaterThan(0.001);
  // 8 of the window and 4 sinks; the first queries see fewer
  expect(streaming.density.decode).toBeCloseTo((78 + 52 * 12) / ((64 * 65) / 2), 12);
  // its blocks exceed the largest cache block, but it can be measured on plain arrays
  expect(refused.refusal).toContain('2000');
  expect(refused.logits).toEqual({});
  expect(refused.attention[0].layers.map(({ name }) => name)).toEqual(['layer 0', 'layer 5']);
  // an oracle with an unlimited budget equals dense, except for the order of sums
  expect(everything.logits.prefill?.divergence.max).toBeLessThan(1e-5);
  expect(everything.attention[0].captured.errorMax).toBeLessThan(1e-4);
  const tables = formatEvaluation(report);
  for (const piece of [...policies, 'Not run', 'passkey', 'diffuse']) expect(tables).toContain(piece);
});

it('has the same figures in shards', async () => {
  const model = await open(openOptionsOf(baseConfiguration, 64));
  const tokens = model.encodePrompt('Once upon a time there was a lighthouse keeper.').slice(0, 24);
  await model.dispose();
  const options = {
    open,
    configurations: createConfigurations(['dense', 'streaming:window=8', 'subquadratic:window=8,block=2000'], []),
    parts: ['logits', 'attention', 'tasks', 'determinism'] as const,
    ...{ tokens, attentionTokens: 16, layers: [0, 5] },
    ...{ tasks: ['passkey'] as const, taskForm: 'codes' as const, taskLengths: [64], numCases: 1, speedLengths: [] },
    seed: 1,
  };
  const shards = evaluationShards(options);
  expect(shards.length).toBe(12);
  const reports: EvaluationReport[] = [];
  const traces: object[] = [];
  const noting: typeof open = (asked) => {
    if (asked.trace !== undefined) traces.push(asked.trace);
    return open(asked);
  };
  for (const shard of shards) reports.push(await evaluateModel({ ...options, open: noting, shard }));
  expect(traces).toEqual(shards.map(() => ({ attention: true }))); // roundings of the base would differ
  const whole = await evaluateModel(options);
  expect(mergeEvaluations(reports)).toEqual(whole);
  expect(whole.configurations.map(({ refusal }) => refusal === undefined)).toEqual([true, true, false]);
  const [first, second] = reports as [EvaluationReport, EvaluationReport];
  // one worker may have less memory than another
  const refusing = { ...second, configurations: second.configurations.map((each) => ({ ...each, refusal: 'full' })) };
  expect(mergeEvaluations([first, refusing]).configurations[0]?.refusal).toBe('full');
  expect(() => mergeEvaluations([first, { ...first, model: 'other' }])).toThrow(/other on/);
  expect(() => mergeEvaluations([first, { ...first, seed: first.seed + 1 }])).toThrow(`seed ${first.seed + 1}`);
  expect(() => mergeEvaluations([first, { ...first, taskForm: 'general' }])).toThrow(/got .* tasks as general/);
  await expect(evaluateModel({ ...options, shard: { configuration: 0, part: 'speed' } })).rejects.toThrow(/shard/);
});
