/** `winnow tune` and `--attention auto` on the demo model, at small sizes. */
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createWasmBackend } from '@winnow/backend-wasm';
import { demoModelUrl } from '@winnow/demo-model';
import * as engine from '@winnow/engine';
import type { Backend } from '@winnow/ops';
import { formatTunedPolicy, parseAttention, readTunedPolicy } from '@winnow/sparse-attention';
import { testCoverage } from '@winnow/test-utils';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { policyPath } from '../src/models/policy-files.js';
import type { EngineApi } from '../src/terminal/io.js';
import { runCli, TestHost } from './run-cli.js';

let folder: string;
let backend: Backend;
/** A search loads the model for each measurement; here equal loads are the same model. */
let shared: EngineApi;
const loaded = new Map<string, Promise<engine.Model>>();
beforeAll(async () => {
  backend = await createWasmBackend({ numThreads: 1 });
  const loadModel: EngineApi['loadModel'] = async (
    location,
    { threads: _threads, signal: _signal, ...options } = {},
  ) => {
    const key = JSON.stringify(options);
    const model = loaded.get(key) ?? engine.loadModel(location, { ...options, backend });
    loaded.set(key, model);
    return { ...(await model), dispose: () => Promise.resolve(), [Symbol.asyncDispose]: () => Promise.resolve() };
  };
  shared = { ...engine, loadModel };
  folder = await mkdtemp(join(tmpdir(), 'winnow-tune-'));
});
afterAll(async () => {
  for (const model of loaded.values()) await (await model).dispose();
  await backend.dispose();
  await rm(folder, { recursive: true });
});

const candidates = ['--candidates', 'streaming:window=16,sinks=4'];
const small = ['-t', '1', '--context', '64', '--windows', '1', '--rounds', '1', '--rows', '8', '--costs', 'pairs'];
const flags = (path: string): string[] => [...small, ...candidates, '--tasks', '', '--kld', '0.05', '-o', path];

// dozens of loads; the search itself is tested on a model of formulas
test.runIf(testCoverage === 'full')('an interrupted search continues, and writes a file and a page', async () => {
  const [path, page] = [join(folder, 'made.policy.json'), join(folder, 'page.html')];
  const host = new TestHost(shared);
  const running = host.run(['tune', ...flags(path)]);
  while (!existsSync(`${path}.partial`)) await new Promise((resolve) => setTimeout(resolve, 5));
  host.interrupt();
  const { code, stderr } = await running;
  expect([code, existsSync(path)]).toEqual([130, false]);
  expect(stderr).toContain(`run the same command to resume from ${path}.partial`);

  const resumed = await runCli(shared, ['tune', ...flags(path), '--page', page]);
  expect(resumed.code).toBe(0);
  expect(resumed.stderr).toMatch(/\.partial: continuing after \d+ measurements/);
  for (const piece of ['Both phases together', 'Policies by layer', 'Tuned at the divergence', `written: ${path}`]) {
    expect(resumed.stdout).toContain(piece);
  }
  expect(existsSync(`${path}.partial`)).toBe(false);
  expect(await readFile(page, 'utf8')).toMatch(/^<!doctype html>.*winnow-tiny.*<svg.*<\/html>\n$/s);
  const { measured, numLayers } = readTunedPolicy(await readFile(path, 'utf8'), { source: path });
  expect(numLayers).toBe(6);
  expect(measured.decode.kld).toBeLessThanOrEqual(0.05);
  expect(measured.decode.density).toBeLessThan(1);
});

test('--attention auto uses the file, refuses that of another model, and is dense with a notice without one', async () => {
  const path = join(folder, 'a.policy.json');
  const figures = { kld: 0, kldError: 0, ms: 1, denseMs: 1 };
  const text = formatTunedPolicy({
    modelHash: await engine.weightsHash(demoModelUrl),
    ...{ numLayers: 6, attention: parseAttention('streaming:window=16'), budget: { kld: 1 }, contextSize: 64, seed: 1 },
    measured: { prefill: figures, decode: figures },
    text: { search: { name: 'a', numTokens: 1, hash: '' }, heldOut: { name: 'b', numTokens: 1, hash: '' } },
    machine: { name: 'a machine', backend: 'wasm' },
  });
  await writeFile(path, text);
  const run = (file: string, ...more: string[]) =>
    runCli(engine, [
      'run',
      '-t',
      '1',
      '-p',
      'The sea',
      '-n',
      '1',
      '-q',
      '--attention',
      'auto',
      '--policy-file',
      file,
      ...more,
    ]);
  expect(await run(path)).toMatchObject({ code: 0, stderr: '' });
  const none = ['run', '-t', '1', '-p', 'The sea', '-n', '1', '--attention', 'auto', '--policy-file', `${path}x`];
  const missing = await runCli(engine, none);
  expect(missing.code).toBe(0);
  expect(missing.stderr).toContain('so attention is dense; winnow tune finds a policy');
  const other = join(folder, 'other.policy.json');
  await writeFile(other, text.replace(/"xxh:[0-9a-f]+"/, '"xxh:other"'));
  const refused = await run(other);
  expect(refused.code).toBe(3);
  expect(refused.stderr).toContain('tuned for another model');
  expect((await run(path, '--decode', 'sparq')).stderr).toContain('--decode: expected nothing beside --attention auto');
  const picture = join(folder, 'a.svg');
  const explain = ['explain-attention', '--tokens', '24', '--attention', 'auto', '--out', picture];
  expect((await runCli(shared, [...explain, '--policy-file', path, '-q'])).code).toBe(0);
  expect((await runCli(shared, [...explain, '--policy-file', `${path}x`, '-q'])).stderr).toContain(
    'winnow tune writes it',
  );
});

test('one budget, valid candidates, a text of two pieces', async () => {
  const path = join(folder, 'c.policy.json');
  const failure = async (...more: string[]): Promise<string> =>
    (await runCli(shared, ['tune', '-t', '1', '--context', '64', '-o', path, ...more])).stderr;
  expect(await failure('--kld', '0.1', '--recall', '0.9')).toContain(
    '--kld: expected one budget, got --recall as well',
  );
  expect(await failure('--candidates', 'spark')).toContain('--candidates: expected');
  const text = join(folder, 'short.txt');
  await writeFile(text, 'The old man looked at the sea.');
  expect(await failure('--text', text)).toContain('expected two pieces of 64 tokens');
  expect(await failure('--context', '8')).toContain('--context: expected windows of at least 32 tokens, got 8');
  expect(await failure('--policy-file', path)).toContain('unknown option');
});

test('where policy files are', () => {
  expect(
    [undefined, 'hf:owner/some-model', 'hf:owner/some:b.Q8_0.gguf', 'https://a.b/c/d.gguf'].map(policyPath),
  ).toEqual([...['winnow-tiny.policy.json', 'some-model.policy.json', 'b.Q8_0.policy.json', 'd.policy.json']]);
});
