/** `winnow embed` and `winnow eval sts` on a tiny encoder and on the demo model, with the real engine. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as engine from '@winnow/engine';
import { repoRoot } from '@winnow/test-utils';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createFakeEngine } from './fake-engine.js';
import { runCli, type CliSetup } from './run-cli.js';

const encoder = join(repoRoot, 'packages', 'engine', 'test', 'fixtures', 'arch', 'bert-mean', 'model.gguf');
const first = 'The small red boat left the harbour.';
const second = 'and the dog, 42 birds!';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'winnow-embed-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

const run = (argv: readonly string[], setup: CliSetup = {}) => runCli(engine, argv, setup);

interface Embedded {
  readonly embeddings: number[][];
  readonly tokens: number[];
}

async function json(argv: readonly string[], setup?: CliSetup): Promise<Embedded & Record<string, unknown>> {
  const { code, stdout, stderr } = await run(['embed', encoder, ...argv, '--json'], setup);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  return JSON.parse(stdout) as Embedded & Record<string, unknown>;
}

/** A line with more words than the model has positions. */
const long = Array.from({ length: 200 }, () => 'boat').join(' ');

test('winnow embed: prints a line of numbers per text', async () => {
  const { code, stdout, stderr } = await run(['embed', encoder, '-p', first, second]);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  const rows = stdout
    .trimEnd()
    .split('\n')
    .map((line) => line.split(' ').map(Number));
  expect(rows.map((row) => row.length)).toEqual([64, 64]);
  for (const row of rows) expect(Math.hypot(...row)).toBeCloseTo(1, 6);
  expect((await json(['-p', first, second])).embeddings).toEqual(rows);
});

test('winnow embed: --json has the vectors of the engine and the token counts of each text', async () => {
  await using model = await engine.loadEmbeddingModel(encoder);
  const expected = await model.embed([first, second], { normalize: false });
  const result = await json(['-p', first, second, '--no-normalize']);
  expect(result).toMatchObject({
    model: 'tiny random bert mean',
    backend: 'wasm',
    pooling: 'mean',
    contextSize: 128,
    dimensions: 64,
    tokens: [10, 10],
    chunks: [1, 1],
    droppedTokens: [0, 0],
  });
  expect(result.embeddings.map((row) => Float32Array.from(row))).toEqual(expected);
});

test('winnow embed: --sparse and --multi-vector add outputs to --json', async () => {
  const m3 = join(repoRoot, 'packages', 'engine', 'test', 'fixtures', 'arch', 'xlm-roberta', 'hf');
  await using model = await engine.loadEmbeddingModel(m3, { pooling: 'cls' });
  const texts = ['boats', 'A storm'];
  const expected = await model.embedTexts(texts, { outputs: ['sparse', 'multiVector'] });
  const argv = ['embed', m3, '--pooling', 'cls', '-p', ...texts];
  const { stdout } = await run([...argv, '--json', '--sparse', '--multi-vector']);
  const result = JSON.parse(stdout) as {
    sparse: { indices: number[]; values: number[] }[];
    multiVectors: number[][][];
  };
  const sparse = result.sparse.map(({ indices, values }) => ({
    indices: Int32Array.from(indices),
    values: Float32Array.from(values),
  }));
  expect(sparse).toEqual(expected.map((text) => text.sparse));
  const vectors = result.multiVectors.map((list) => list.map((vector) => Float32Array.from(vector)));
  expect(vectors).toEqual(expected.map((text) => text.multiVector));
  const plain = await run([...argv, '--sparse']);
  expect(plain).toMatchObject({ code: 2, stderr: expect.stringContaining('--sparse: requires --json') as string });
  const refused = await run(['embed', encoder, '-p', first, '--json', '--multi-vector']);
  const needed = '--multi-vector: expected a model with colbert_linear.pt or colbert_linear.safetensors';
  expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining(needed) as string });
});

test('winnow embed: the vectors of queries and documents of a ColBERT model', async () => {
  const colbert = join(repoRoot, 'packages', 'engine', 'test', 'fixtures', 'arch', 'colbert', 'hf');
  await using model = await engine.loadEmbeddingModel(colbert);
  for (const promptName of ['query', 'document']) {
    const [expected] = await model.embedTexts(['boats'], { outputs: ['multiVector'], promptName });
    const argv = ['embed', colbert, '-p', 'boats', '--json', '--multi-vector', '--prompt-name', promptName];
    const result = JSON.parse((await run(argv)).stdout) as { dimensions: number; multiVectors: number[][][] };
    expect(result.multiVectors[0]?.map((vector) => Float32Array.from(vector))).toEqual(expected?.multiVector);
    expect(result.dimensions).toBe(20);
  }
  const refused = 'MODEL: expected one with vectors of whole texts, got one with a vector per token';
  const embedding = ['embed', colbert, '-p', 'boats'];
  expect((await run(embedding)).stderr).toContain(`${refused}, which --json --multi-vector prints`);
  const prefixed = await run([...embedding, '--prefix', 'query: ']);
  expect(prefixed.stderr).toContain(
    '--prefix: expected none: texts of this model are queries or documents, by --prompt-name',
  );
  const pairs = join(folder, 'pairs.tsv');
  writeFileSync(pairs, '4\tA boat.\tA ship.\n1\tA boat.\tA dog.\n');
  expect((await run(['eval', 'sts', colbert, '--data', pairs])).stderr).toBe(`winnow: ${refused}\n`);
});

test('winnow embed: says how many tokens are left of a query that is too long for a ColBERT model', async () => {
  const colbert = join(repoRoot, 'packages', 'engine', 'test', 'fixtures', 'arch', 'colbert', 'hf');
  const query = ['embed', colbert, '-p', long, '--prompt-name', 'query', '--overflow', 'truncate'];
  const { stdout, stderr } = await run([...query, '--json', '--multi-vector']);
  const [numTokens] = (JSON.parse(stdout) as { tokens: number[] }).tokens;
  expect(stderr).toContain(`1 of 1 texts were truncated to ${numTokens} tokens`);
});

test('winnow embed: reads the lines of a file and of stdin, including empty ones', async () => {
  const path = join(folder, 'lines.txt');
  const lines = `${first}\r\n\n${second}\n`;
  writeFileSync(path, lines);
  const expected = await json(['-p', first, '', second]);
  expect(await json(['-f', path])).toEqual(expected);
  expect(await json(['-f', '-'], { stdin: lines })).toEqual(expected);
  expect(await json([], { stdin: lines })).toEqual(expected);
  expect((await json([], { stdin: '' })).embeddings).toEqual([]);
});

test('winnow embed: --npy writes a NumPy file', async () => {
  const path = join(folder, 'vectors.npy');
  expect(await run(['embed', encoder, '-p', first, second, '--npy', '-o', path])).toMatchObject({
    code: 0,
    stdout: '',
    stderr: '',
  });
  const bytes = readFileSync(path);
  expect(bytes.toString('latin1', 0, 6)).toBe('\x93NUMPY');
  const begin = 10 + bytes.readUInt16LE(8);
  expect(bytes.toString('latin1', 10, begin)).toContain("'<f4', 'fortran_order': False, 'shape': (2, 64)");
  const values = Array.from({ length: 128 }, (_, i) => bytes.readFloatLE(begin + 4 * i));
  expect(bytes.length).toBe(begin + 4 * 128);
  const { embeddings } = await json(['-p', first, second]);
  expect(values).toEqual(embeddings.flat().map(Math.fround));
});

test('winnow embed: rejects long texts unless --overflow is given', async () => {
  const refused = await run(['embed', encoder, '-p', first, long]);
  expect(refused).toMatchObject({ code: 4, stdout: '' });
  expect(refused.stderr).toContain('texts[1]: needed 202 tokens, available 128 tokens');
  expect(await json(['-q', '-p', long, '--overflow', 'truncate'])).toMatchObject({
    tokens: [128],
    droppedTokens: [74],
  });
  expect(await json(['-p', long, '--overflow', 'chunk-average'])).toMatchObject({ tokens: [204], chunks: [2] });
  const cut = await run(['embed', encoder, '-p', long, '--overflow', 'truncate']);
  expect(cut.stderr).toContain('1 of 1 texts were truncated to 128 tokens');
});

test('winnow embed: overrides settings of the model', async () => {
  const usual = await json(['-p', first]);
  const cls = await json(['-p', first, '--pooling', 'cls', '-c', '16', '-b', '32', '--backend', 'reference']);
  expect(cls).toMatchObject({ pooling: 'cls', contextSize: 16, backend: 'reference' });
  expect(cls.embeddings).not.toEqual(usual.embeddings);
  expect(await json(['-p', 'left the harbour.', '--prefix', 'The small red boat '])).toEqual(usual);
  expect((await json(['-p', first, '--dimensions', '8'])).embeddings[0]).toHaveLength(8);
});

test('winnow embed: shows its progress on a terminal', async () => {
  const { stderr } = await run(['embed', encoder, '-p', first, long, '--overflow', 'truncate', '-b', '1'], {
    isStderrTerminal: true,
  });
  expect(stderr).toContain('embed [');
});

test('winnow embed: a generative model requires a pooling', async () => {
  const refused = await run(['embed', '-p', 'Once upon a time']);
  expect(refused).toMatchObject({ code: 2, stdout: '' });
  expect(refused.stderr).toContain('--pooling: expected mean | cls | last | max | weighted-mean | mean-sqrt');
  const { code, stdout } = await run(['embed', '-p', 'Once upon a time', '--pooling', 'last', '--json']);
  expect(code).toBe(0);
  expect((JSON.parse(stdout) as Embedded).embeddings[0]?.length).toBeGreaterThan(16);
});

test.each([
  [['--npy', '--json', '-p', 'x'], 'expected one format'],
  [['-p', 'x', '-f', 'y'], 'expected one source of texts'],
  [['--pooling', 'sum', '-p', 'x'], '--pooling'],
  [['--prompt-name', 'query', '-p', 'x'], 'this model has no prompts'],
  [[], 'expected texts from'],
])('winnow embed: rejects %j', async (argv, message) => {
  const { code, stderr } = await run(['embed', encoder, ...argv]);
  expect(code).toBe(2);
  expect(stderr).toContain(message);
});

test('winnow embed: does not write a matrix to a terminal', async () => {
  const { code, stderr } = await run(['embed', encoder, '-p', 'x', '--npy'], { isStdoutTerminal: true });
  expect(code).toBe(2);
  expect(stderr).toContain('-o PATH');
});

test('winnow embed: an encoder does not generate', async () => {
  const { code, stderr } = await run(['run', encoder, '-p', 'x']);
  expect(code).toBe(2);
  expect(stderr).toContain('an encoder, which only embeds');
  expect(await run(['inspect', encoder])).toMatchObject({ code: 0 });
});

describe('winnow eval sts', () => {
  const lines = [
    [5, first, first],
    [2, first, second],
    [1, second, 'x'],
  ];

  test('reports rank correlation, as text and as JSON', async () => {
    const path = join(folder, 'pairs.tsv');
    writeFileSync(path, lines.map((line) => `${line.join('\t')}\n`).join(''));
    const { code, stdout, stderr } = await run(['eval', 'sts', encoder, '--data', path]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toMatch(/^spearman -?\d\.\d{4} {2}pearson -?\d\.\d{4}\n3 pairs, 3 sentences, \d+ tokens\n$/);
    const result = await run(['eval', 'sts', encoder, '--data', '-', '--json'], { stdin: readFileSync(path, 'utf8') });
    expect(result.code).toBe(0);
    const report = JSON.parse(result.stdout) as Record<string, unknown>;
    expect(report).toMatchObject({ model: 'tiny random bert mean', pooling: 'mean', numPairs: 3, numTexts: 3 });
    expect(Number(report['spearman'])).toBeLessThanOrEqual(1);
  });

  test('rejects invalid data', async () => {
    const broken = await run(['eval', 'sts', encoder, '--data', '-'], { stdin: 'one line\n' });
    expect(broken.code).toBe(3);
    expect(broken.stderr).toContain('line 1');
    const missing = await runCli(createFakeEngine().api, ['eval', 'sts', encoder]);
    expect(missing.code).toBe(2);
    expect(missing.stderr).toContain('--data');
  });
});
