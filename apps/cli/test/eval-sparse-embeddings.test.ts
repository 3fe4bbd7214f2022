/** `winnow eval --sparsity` of embedding models. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as engine from '@winnow/engine';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { runCli } from './run-cli.js';

const bert = fileURLToPath(
  new URL('../../../packages/engine/test/fixtures/arch/bert-mean/model.gguf', import.meta.url),
);
let folder = '';
let sidecar = '';
let text = '';
let pairs = '';

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'winnow-eval-'));
  [sidecar, text, pairs] = [join(folder, 'bert.sparse.safetensors'), join(folder, 'texts.txt'), join(folder, 'pairs')];
  const sentences = Array.from({ length: 24 }, (_, i) => `text ${i} of several words`);
  writeFileSync(text, sentences.join('\n\n'));
  writeFileSync(pairs, sentences.map((sentence, i) => `${i % 5}\t${sentence}\t${sentences[(3 * i) % 24]}`).join('\n'));
  const argv = ['calibrate', bert, '--text', text, '--epochs', '1', '-t', '1', '-o', sidecar, '-q'];
  expect(await runCli(engine, argv)).toMatchObject({ code: 0, stderr: '' });
});
afterAll(() => rmSync(folder, { recursive: true }));

const evaluate = (...argv: readonly string[]): ReturnType<typeof runCli> =>
  runCli(engine, ['eval', bert, '--sparsity', sidecar, '--text', text, '--tokens', '64', '-t', '1', '-q', ...argv]);

test('cosines of vectors, neurons per text, and rank correlations, compared with dense', async () => {
  const { code, stdout } = await evaluate('--pairs', pairs);
  expect(code).toBe(0);
  expect(stdout).toMatch(/\nlayer +predictor[^]*\nFFN output, cosine to dense/);
  expect(stdout).toMatch(/\nvectors, cosine to dense +mean [01]\.\d{4}, least [01]\.\d{4}\n/);
  expect(stdout).toMatch(/\nneurons computed +\d+\.\d% \(the union over the tokens of a text\)\n/);
  expect(stdout).toMatch(/\nSpearman +-?\d\.\d{4}, dense -?\d\.\d{4}\n/);
});

test('as JSON, without pairs', async () => {
  const { stdout } = await evaluate('--json');
  const result = JSON.parse(stdout) as Record<string, unknown>;
  expect(result).toMatchObject({ cosine: { mean: expect.any(Number) }, layers: [{}, {}] });
  expect(result['numTexts']).toBeLessThan(24); // the words of 64 tokens
  expect(result).not.toHaveProperty('sts');
});

test('pairs require an embedding model and a calibration', async () => {
  const refused = await runCli(engine, ['eval', '--pairs', pairs]);
  expect(refused).toMatchObject({ code: 2, stderr: expect.stringMatching(/--pairs: requires --sparsity/) });
});
