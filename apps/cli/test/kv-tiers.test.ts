/** `--kv-budget`, `--kv-offload-memory` and `--kv-offload-folder`. */
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as engine from '@winnow/engine';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { runCli } from './run-cli.js';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'winnow-tiers-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

interface RunResult {
  readonly tokens: number[];
  readonly metrics: { readonly tiers?: engine.TierMetrics };
}

async function runJson(argv: readonly string[]): Promise<RunResult> {
  const { code, stdout, stderr } = await runCli(engine, ['run', ...argv, '--json', '-q']);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  return JSON.parse(stdout) as RunResult;
}

test('tiers do not change the tokens', async () => {
  const options = [
    '-p',
    'Once upon a time, the old man looked at the sea. '.repeat(30),
    '-n',
    '60',
    '-c',
    '512',
    '-b',
    '16',
    '--temperature',
    '0',
    '--ignore-eos',
  ];
  const { plan } = JSON.parse((await runCli(engine, ['inspect', '--json'])).stdout) as engine.ModelInfo;
  const tiers = ['--kv-budget', String(5 * 64 * plan.kvBytesPerToken), '--kv-offload-folder', join(folder, 'kv')];
  const whole = await runJson(options);
  expect(whole.metrics.tiers).toBeUndefined();
  const { tokens, metrics } = await runJson([...options, ...tiers]);
  expect(tokens).toEqual(whole.tokens);
  expect(metrics.tiers).toMatchObject({ numHits: 0, warmBytes: 0 });
  expect(metrics.tiers?.numDemotedTokens).toBeGreaterThan(0);
  expect(metrics.tiers?.bytesWritten).toBeGreaterThan(0);
  expect(metrics.tiers?.numMisses).toBeGreaterThan(0);
  expect(readdirSync(join(folder, 'kv'))).toEqual([]);
  const { stdout } = await runCli(engine, [
    'inspect',
    '-c',
    '512',
    ...tiers,
    '--kv-offload-memory',
    '1KiB',
    '-b',
    '16',
  ]);
  expect(stdout).toMatch(/hot: backend memory .*\n.*staging buffers .*\n.*warm: host memory +1.*\n.*cold: in files /);
});

test('invalid values are rejected by the name of the flag', async () => {
  const small = await runCli(engine, ['run', '-p', 'a', '--kv-budget', '1KiB']);
  expect(small.code).toBe(4);
  expect(small.stderr).toMatch(
    /^winnow: --kv-budget: needed .*use --kv-offload-memory or --kv-offload-folder for the pages that do not fit/,
  );
  const cold = await runCli(engine, [
    'run',
    '-p',
    'a',
    '-c',
    '512',
    '-b',
    '1',
    '--kv-budget',
    '1MB',
    '--kv-offload-folder',
    '/dev/null/x',
  ]);
  expect(cold.code).toBe(1);
  expect((await runCli(engine, ['run', '--kv-offload-memory', 'much'])).code).toBe(2);
});
