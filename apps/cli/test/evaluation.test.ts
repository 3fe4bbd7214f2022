/** `winnow eval` and `winnow explain-attention` on the demo model, at small sizes. */
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as engine from '@winnow/engine';
import type { EvaluationReport } from '@winnow/evaluation';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { runCli } from './run-cli.js';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'winnow-eval-'));
});
afterAll(() => rm(folder, { recursive: true }));

const run = (argv: readonly string[]) => runCli(engine, argv);
const small = ['-t', '1', '--tokens', '48', '--cases', '1', '--task-lengths', '64', '--tasks', 'needle,hard-negatives'];
const policies = ['--policies', 'dense|streaming:window=16,sinks=2|sparq:rank=8,topk=16', '--kv-dtypes', 'q8_0'];

async function report(...argv: string[]): Promise<EvaluationReport> {
  const { code, stdout, stderr } = await run(['eval', ...argv, '--json', '-q']);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  return JSON.parse(stdout) as EvaluationReport;
}

test('winnow eval: figures as JSON, and plots', async () => {
  const plots = join(folder, 'plots');
  const result = await report(...small, ...policies, '--parts', 'logits,attention,tasks,speed', '--plots', plots);
  expect(result).toMatchObject({ model: 'winnow-tiny', backend: 'wasm', numTokens: 48, seed: 1, taskForm: 'codes' });
  const [dense, streaming, sparq, q8] = result.configurations;
  expect(Object.keys(dense?.logits ?? {})).toEqual(['prefill', 'decode']);
  expect(dense?.logits.prefill?.divergence.max).toBe(0); // the same program on the same tokens
  expect(dense?.logits.decode?.divergence.mean).toBeLessThan(1e-5); // rounding
  expect(streaming?.logits.prefill?.divergence.mean).toBeGreaterThan(0.001);
  expect(Object.keys(sparq?.logits ?? {})).toEqual(['decode']);
  expect(sparq?.logits.decode?.divergence.mean).toBeGreaterThan(1e-5);
  expect(q8?.logits.prefill?.divergence.mean).toBeGreaterThan(0);
  expect(q8?.kvBytesPerToken).toBeLessThan((dense?.kvBytesPerToken as number) / 3);
  expect(q8?.attention).toEqual([]);
  expect(streaming?.attention[0]?.layers).toHaveLength(6);
  expect(streaming?.attention[0]?.captured.density).toBeCloseTo(18 / 36.5, 6);
  expect(dense?.tasks.map(({ task, scores }) => [task, scores.length])).toEqual([
    ['needle', 3],
    ['hard-negatives', 3],
  ]);
  expect(dense?.tasks[0]?.mean).toBe(1);
  expect(streaming?.tasks[0]?.mean).toBe(0); // the needle is outside the window
  for (const { speed } of result.configurations) expect(speed.map(({ length }) => length)).toEqual([12, 24, 43]);
  expect(result.determinism).toEqual([]);
  expect((await readdir(plots)).toSorted()).toEqual(['answer-time.svg', 'prompt-time.svg', 'quality.svg']);
  expect(await readFile(join(plots, 'quality.svg'), 'utf8')).toMatch(/^<svg .*<\/svg>$/s);
});

test('winnow eval: determinism', async () => {
  const flags = ['--tokens', '24', '--policies', 'sparq:rank=8,topk=8', '--kv-dtypes', '', '--parts', 'determinism'];
  const { determinism } = await report(...flags);
  expect(determinism).toMatchObject([
    { label: 'sparq:rank=8,topk=8', repeats: true, sameForThreads: true, threadDifference: 0, isDeterministic: true },
  ]);
  expect(determinism[0]?.backendDifference).toBeGreaterThan(0);
});

test('winnow eval: equal flags give equal figures', async () => {
  const few = [
    '-t',
    '1',
    '--tokens',
    '24',
    '--cases',
    '1',
    '--task-lengths',
    '64',
    '--tasks',
    'needle',
    '--kv-dtypes',
    'q8_0',
  ];
  const flags = [...few, '--policies', 'sparq:rank=8,topk=16', '--parts', 'logits,attention,tasks'];
  expect(await report(...flags)).toEqual(await report(...flags));
});

test('winnow eval: tables for a text of the user', async () => {
  const text = join(folder, 'text.txt');
  await writeFile(text, 'The old man looked at the sea and said nothing. '.repeat(12));
  const parts = ['--parts', 'logits,attention', '--details', '--text', text];
  const { code, stdout, stderr } = await run(['eval', ...small, '--attention', 'sparq:topk=8', ...parts]);
  expect(code).toBe(0);
  expect(stderr).toMatch(/^winnow: step 1 of 7: base\n(winnow: step \d of 7: .+\n)+$/);
  for (const piece of [
    'Logits compared with dense',
    'Attention compared with dense',
    'mean KLD',
    'same top p',
    'kv=q4_0',
  ]) {
    expect(stdout).toContain(piece);
  }
  expect(stdout).toContain('decode=sparq:topk=8');
  expect(stdout).not.toContain('Recall tasks');
});

test.each([
  [['--policies', 'dense|spars'], 'spars'],
  [
    ['--parts', 'logits,speeed'],
    "--parts: expected names of logits, attention, tasks, speed, determinism, got 'speeed'",
  ],
  [['--kv-dtypes', 'q9'], '--kv-dtypes'],
  [['--lengths', '2000'], '2000'],
  [['--tokens', '1'], 'at least 2 tokens'],
])('winnow eval: rejects %j', async (flags, message) => {
  const { code, stderr } = await run(['eval', ...small, ...flags]);
  expect(code).toBe(2);
  expect(stderr).toContain(message);
});

describe('winnow explain-attention', () => {
  test('draws a panel per layer and head, and prints pairs and mass', async () => {
    const out = join(folder, 'picture.svg');
    const prompt = 'The code of Alice is 31407. The old man looked at the sea. What is the code of Alice?';
    const flags = ['-p', prompt, '--layers', '0,last', '--heads', '1,2', '--attention', 'sparq:rank=8,topk=8'];
    const { code, stdout, stderr } = await run(['explain-attention', ...flags, '--out', out]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    const lines = stdout.trimEnd().split('\n');
    expect(lines[0]).toMatch(/^winnow-tiny, \d+ tokens, decode sparq:rank=8,topk=8: .* of the pairs, .* of the mass$/);
    expect(lines.slice(2).map((line) => line.split(/\s+/).slice(0, 2).join())).toEqual(['0,1', '0,2', '5,1', '5,2']);
    const svg = await readFile(out, 'utf8');
    expect(svg.match(/layer \d, head \d/g)).toEqual([
      'layer 0, head 1',
      'layer 0, head 2',
      'layer 5, head 1',
      'layer 5, head 2',
    ]);
    expect(svg).toContain(lines[0]);
  });

  test('has a default text and policy', async () => {
    const out = join(folder, 'default.svg');
    const { code, stdout } = await run([
      'explain-attention',
      '--out',
      out,
      '--json',
      '--heads',
      '0',
      '--tokens',
      '128',
    ]);
    expect(code).toBe(0);
    const result = JSON.parse(stdout) as { attention: string; tokens: number; phase: string; panels: object[] };
    expect(result).toMatchObject({ attention: 'subquadratic:window=32,block=16', tokens: 128, phase: 'prefill' });
    expect(result.panels.map((panel) => (panel as { layer: number }).layer)).toEqual([0, 3, 5]);
  });

  test.each([
    [['--attention', 'sparse'], 'sparse'],
    [['--layers', '6'], '--layers'],
    [['-p', ''], 'at least 2 tokens'],
  ])('rejects %j', async (flags, message) => {
    const { code, stderr } = await run(['explain-attention', '--out', join(folder, 'none.svg'), ...flags]);
    expect(code).toBe(2);
    expect(stderr).toContain(message);
  });

  test('a file that cannot be written exits with the code for I/O errors', async () => {
    const { code, stderr } = await run([
      'explain-attention',
      '-p',
      'Hello there',
      '--out',
      join(folder, 'no', 'x.svg'),
    ]);
    expect(code).toBe(1);
    expect(stderr).toContain('cannot be written');
  });
});

describe('winnow eval h2o', () => {
  const flags = ['-t', '1', '--tokens', '96', '--chunk', '32', '--locals', '0,8', '--heavies', '8,24'];

  test('a table over both budgets, and the map of the last pair', async () => {
    const out = join(folder, 'cached.svg');
    const { code, stdout, stderr } = await run(['eval', 'h2o', ...flags, '--json', '-q', '--out', out]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    const { cells, heavySets, ...rest } = JSON.parse(stdout) as {
      cells: {
        local: number;
        heavy: number;
        divergence?: { divergence: { mean: number }; pplRatio: { mean: number } };
      }[];
      heavySets: { numSets: number; betweenRuns: number }[];
    };
    expect(rest).toMatchObject({ model: 'winnow-tiny', tokens: 96, chunk: 32, sinks: 0 });
    expect(cells.map(({ local, heavy }) => [local, heavy])).toEqual([
      [0, 8],
      [0, 24],
      [8, 8],
      [8, 24],
    ]);
    const mean = (index: number): number | undefined => cells[index]?.divergence?.divergence.mean;
    expect(mean(3)).toBeUndefined(); // L + H is a whole chunk
    expect(mean(1)).toBeLessThan(mean(0) as number); // more memory is closer to dense
    expect(heavySets).toHaveLength(6);
    for (const { betweenRuns } of heavySets) expect(betweenRuns).toBeLessThanOrEqual(1);
    const svg = await readFile(out, 'utf8');
    expect(svg).toContain('cached by h2o of chunks of 32, L=8, H=23'); // clamped to less than a chunk
    expect(svg.match(/layer \d, head 0/g)).toHaveLength(6);
  });

  test('as text', async () => {
    const { code, stdout } = await run(['eval', 'h2o', ...flags, '-q']);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^ +H=8 +H=24$/m);
    expect(stdout).toMatch(/^L=8 +\d\.\d{3} \(\d\.\d{4}\) +-$/m);
    expect(stdout).toMatch(/^layer 5 +[01]\.\d{3} +[01]\.\d{3} +[01]\.\d{3}$/m);
  });

  test('invalid budgets are rejected', async () => {
    const { code, stderr } = await run(['eval', 'h2o', '--chunk', '32', '--locals', 'x']);
    expect({ code, stderr }).toMatchObject({ code: 2, stderr: expect.stringContaining('--locals') as string });
  });
});
