/** `--sparsity` and `--memory`: skipped neurons, and weights that stay in the file. */
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as engine from '@winnow/engine';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { runCli } from './run-cli.js';

let folder = '';
let sidecar = '';
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'winnow-sparse-'));
  sidecar = join(folder, 'demo.sparse.safetensors');
  const small = ['-t', '1', '--samples', '8', '--sample-tokens', '64', '--eval-tokens', '16'];
  const argv = ['calibrate', ...small, '--predictor', 'gate-threshold', '-o', sidecar, '-q'];
  expect(await runCli(engine, argv)).toMatchObject({ code: 0 });
});
afterAll(() => rmSync(folder, { recursive: true }));

interface RunResult {
  readonly text: string;
  readonly metrics: engine.ModelMetrics;
}

const prompt = [
  '-t',
  '1',
  '-p',
  'The captain looked at the sea',
  '-n',
  '24',
  '-c',
  '256',
  '--temperature',
  '0',
  '--ignore-eos',
];

async function runJson(argv: readonly string[]): Promise<RunResult> {
  const { code, stdout, stderr } = await runCli(engine, ['run', ...prompt, ...argv, '--json', '-q']);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  return JSON.parse(stdout) as RunResult;
}

async function planOf(argv: readonly string[]): Promise<engine.MemoryPlan> {
  const { stdout } = await runCli(engine, ['inspect', '-c', '256', '--json', ...argv]);
  return (JSON.parse(stdout) as engine.ModelInfo).plan;
}

test('a calibration skips neurons; a memory budget does not change the text', async () => {
  const whole = await runJson(['--sparsity', sidecar]);
  const { layers } = whole.metrics.feedForward as engine.FeedForwardMetrics;
  expect(layers.length).toBe(6);
  for (const { activeRatio } of layers) expect(activeRatio).toBeLessThan(0.6);
  const { totalBytes, weightsBytes } = await planOf(['--sparsity', sidecar]);
  const limit = String(Math.round(totalBytes - weightsBytes / 8));
  const cold = join(folder, 'cold');
  const tiered = await runJson(['--sparsity', sidecar, '--memory', limit, '--memory-folder', cold]);
  expect(tiered.text).toBe(whole.text);
  expect(tiered.metrics.feedForward?.cache?.misses).toBeGreaterThan(0);
  expect(readdirSync(cold)).toEqual([]);
});

test('inspect prints the tiers, and run summarizes them in a line', async () => {
  const { totalBytes, weightsBytes } = await planOf(['--sparsity', sidecar]);
  const limit = String(Math.round(totalBytes - weightsBytes / 8));
  const { stdout } = await runCli(engine, ['inspect', '-c', '256', '--sparsity', sidecar, '--memory', limit]);
  expect(stdout).toMatch(
    /always in memory .*\n.*hot: in slots .* of \d+ neurons, \d+ of them pinned\n.*\n.*\n.*cold: in the file /,
  );
  const { stderr } = await runCli(engine, ['run', ...prompt, '--sparsity', sidecar, '--memory', limit]);
  expect(stderr).toMatch(/\d+ of \d+ neurons fit in memory \(.* MB\); .* MB are read on demand/);
});

test('inspect shows the plan of the smallest budget if the requested one is too small, and that one works', async () => {
  const argv = ['-c', '256', '-b', '8', '--sparsity', sidecar, '--memory'];
  const { code, stdout, stderr } = await runCli(engine, ['inspect', ...argv, '1MB']);
  expect(code).toBe(4);
  expect(stdout).toMatch(/hot: in slots .* of \d+ neurons/);
  const [, least = ''] = /needed (\d+) bytes, available 1000000 bytes/.exec(stderr) ?? [];
  expect((await runCli(engine, ['run', ...prompt, ...argv, least, '-n', '2'])).code).toBe(0);
  const { stderr: refused } = await runCli(engine, ['run', ...prompt, ...argv, String(Number(least) - 1)]);
  expect(refused).toContain(`needed ${least} bytes`);
});

test('the error of --memory-hot all names the larger budget; --sparsity-verify accepts the calibrated weights', async () => {
  const argv = ['inspect', '-c', '256', '--sparsity', sidecar, '--memory', '1MB'];
  const leastOf = async (more: readonly string[]): Promise<number> => {
    const { stderr } = await runCli(engine, [...argv, ...more]);
    return Number(/needed (\d+) bytes/.exec(stderr)?.[1]);
  };
  expect(await leastOf(['--memory-hot', 'all'])).toBeGreaterThan(await leastOf(['--memory-hot', 'fitting']));
  await runJson(['--sparsity', sidecar, '--sparsity-verify']);
  const evaluated = ['eval', '--sparsity', sidecar, '--tokens', '32', '--sparsity-verify'];
  expect(await runCli(engine, [...evaluated, '-q'])).toMatchObject({ code: 0 });
});

test.each([
  [['--sparsity-verify'], '--sparsity-verify: expected nothing without --sparsity, got true'],
  [['--sparsity-max-active', '0.9'], '--sparsity-max-active: expected nothing without --sparsity, got 0.9'],
  [['--memory-cold', 'q4_0'], '--memory-cold: expected nothing without --memory, got q4_0'],
  [['--memory-hot', 'all'], '--memory-hot: expected nothing without --memory, got all'],
])('%j alone has no effect and is rejected', async (flags, message) => {
  const { code, stderr } = await runCli(engine, ['run', ...prompt, ...flags]);
  expect([code, stderr]).toEqual([2, `winnow: ${message}\n`]);
});

test('lower tiers in memory: an 8-bit warm tier, a 4-bit copy instead of the file; --sparsity-max-active', async () => {
  const { totalBytes, weightsBytes } = await planOf(['--sparsity', sidecar]);
  const limit = String(Math.round(totalBytes - weightsBytes / 8));
  const argv = ['inspect', '-c', '256', '--sparsity', sidecar, '--memory', limit];
  const { stdout } = await runCli(engine, [...argv, '--memory-warm', 'q8_0', '--memory-cold', 'q4_0']);
  expect(stdout).toMatch(/cold: in 4 bits /);
  const { stderr } = await runCli(engine, [
    'run',
    ...prompt,
    '--sparsity',
    sidecar,
    '--memory',
    limit,
    '--memory-cold',
    'q4_0',
  ]);
  expect(stderr).toMatch(/MB are kept in 4 bits/);
  const dense = await runCli(engine, ['run', ...prompt, '--sparsity', sidecar, '--sparsity-max-active', '0']);
  expect(dense.code).toBe(0);
});

test('--profile shows layers, predictors and the overlap of reads with computation', async () => {
  const { totalBytes, weightsBytes } = await planOf(['--sparsity', sidecar]);
  const limit = String(Math.round(totalBytes - weightsBytes / 8));
  const argv = ['run', ...prompt, '--sparsity', sidecar, '--memory', limit, '--profile', '-q'];
  const { stderr } = await runCli(engine, argv);
  expect(stderr).toMatch(/layer +active +in batches +ms +predictor ms +hits +misses +stall ms\n0 +\d/);
  expect(stderr).toMatch(/\d+ reads of .* in .* ms, .*% of it overlapped with computation/);
});

test('without a calibration the budget is rejected, and the error says what would help', async () => {
  const { code, stderr } = await runCli(engine, ['run', ...prompt, '--memory', '4MB']);
  expect(code).toBe(4);
  expect(stderr).toMatch(/use a calibration \(--sparsity\), so that weights may stay in the file/);
});

test('files that are not calibrations are rejected', async () => {
  const path = join(folder, 'none.sparse.safetensors');
  writeFileSync(path, 'not a calibration');
  const { code, stderr } = await runCli(engine, ['run', ...prompt, '--sparsity', path]);
  expect(code).toBe(3);
  expect(stderr).toContain('none.sparse.safetensors');
});

test('embed accepts both', async () => {
  const argv = ['embed', '-p', 'one text', 'another', '--pooling', 'mean', '--json', '-q', '-c', '64', '-b', '64'];
  const dense = JSON.parse((await runCli(engine, argv)).stdout) as { embeddings: number[][] };
  const { code, stdout } = await runCli(engine, [...argv, '--sparsity', sidecar]);
  expect(code).toBe(0);
  const { embeddings } = JSON.parse(stdout) as { embeddings: number[][] };
  const cosine = (a: readonly number[], b: readonly number[]): number =>
    a.reduce((sum, value, i) => sum + value * (b[i] as number), 0);
  for (const [at, vector] of embeddings.entries()) {
    expect(cosine(vector, dense.embeddings[at] as number[])).toBeGreaterThan(0.9);
  }
});
