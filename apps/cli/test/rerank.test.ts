/** `winnow rerank` on a tiny cross-encoder with random weights, with the real engine. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as engine from '@winnow/engine';
import { openSqliteJobStore } from '@winnow/jobs/node';
import { batchResults, enqueueBatchLines } from '@winnow/server';
import { repoRoot } from '@winnow/test-utils';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { runCli, type CliSetup } from './run-cli.js';

const rerankers = join(repoRoot, 'packages', 'engine', 'test', 'fixtures', 'rerank');
const reranker = join(rerankers, 'bert', 'model.gguf');
const query = 'Where is the harbor?';
const documents = ['The harbor is by the sea.', 'Two eggs.', 'storm'];

interface Response {
  readonly body: { readonly model: string; readonly results: unknown };
}

let folder = '';
let expected: engine.RankedDocument[] = [];
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'winnow-rerank-'));
  await using model = await engine.loadReranker(reranker);
  expected = await model.rerank(query, documents);
});
afterAll(() => rmSync(folder, { recursive: true }));

const run = (argv: readonly string[], setup: CliSetup = {}) =>
  runCli(engine, ['rerank', reranker, '--query', query, ...argv], setup);

test('winnow rerank: prints score, index and document, the best first', async () => {
  const { code, stdout, stderr } = await run(['-d', ...documents]);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  const lines = expected.map(({ index, score }) => `${score.toFixed(4)}\t${index}\t${documents[index]}\n`);
  expect(stdout).toBe(lines.join(''));
  expect((await run(['-d', ...documents, '--top-n', '1'])).stdout).toBe(lines[0]);
});

test('winnow rerank: --json has the scores of the engine; documents come from a file or stdin', async () => {
  const path = join(folder, 'lines.txt');
  writeFileSync(path, `${documents.join('\r\n')}\n`);
  const results = expected.map(({ index, score, numTokens }) => {
    return { index, score, document: documents[index], tokens: numTokens, droppedTokens: 0 };
  });
  const json = { model: 'golden bert', backend: 'wasm', contextSize: 128, query, results };
  for (const [argv, setup] of [
    [['-d', ...documents], {}],
    [['-f', path], {}],
    [['-f', '-'], { stdin: documents.join('\n') }],
    [[], { stdin: documents.join('\n') }],
  ] as const) {
    const { code, stdout } = await run([...argv, '--json'], setup);
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toEqual(json);
  }
  expect(JSON.parse((await run(['--json'], { stdin: '' })).stdout)).toMatchObject({ results: [] });
  const logits = await run(['-d', ...documents, '--json', '--no-normalize']);
  const [best] = (JSON.parse(logits.stdout) as { results: { score: number }[] }).results;
  expect(1 / (1 + Math.exp(-(best?.score as number)))).toBe(expected[0]?.score);
});

test('winnow rerank: rejects long documents unless --overflow is given', async () => {
  const long = 'boats '.repeat(50);
  const refused = await run(['-d', 'storm', long, '-c', '24']);
  expect(refused).toMatchObject({ code: 4, stdout: '' });
  expect(refused.stderr).toContain('documents[1]: needed 63 tokens, available 24 tokens');
  // also those that are not printed
  const cut = await run(['-d', long, long, 'storm', '-c', '24', '--overflow', 'truncate', '--top-n', '1']);
  expect(cut.code).toBe(0);
  expect(cut.stdout.trimEnd().split('\n')).toHaveLength(1);
  expect(cut.stderr).toContain('2 of the 3 documents were truncated to 24 tokens');
});

test('winnow rerank: control characters of documents do not reach the terminal', async () => {
  expect((await run(['-d', 'a\u001b[2Jb'])).stdout).toContain('a\\u001b[2Jb');
});

test('winnow rerank: an instruction is for Qwen3-Reranker', async () => {
  const judge = join(rerankers, 'qwen3', 'hf');
  const argv = ['rerank', judge, '--query', query, '-d', ...documents, '--instruction', 'Find recipes'];
  expect(await runCli(engine, argv)).toMatchObject({ code: 0 });
  const refused = await run(['-d', ...documents, '--instruction', 'Find recipes']);
  expect(refused.code).toBe(2);
  expect(refused.stderr).toContain('--instruction: expected no instruction');
});

test.each([
  [['rerank'], 'MODEL: expected a reranker, got none'],
  [['rerank', reranker], '--query: expected a text, got none'],
  [['rerank', reranker, '--query', query], 'expected documents from'],
  [['rerank', reranker, '--query', query, '-d', 'x', '-f', 'y'], 'expected one source of documents'],
  [['rerank', reranker, '--query', query, '-d', 'x', '--top-n', '0'], '--top-n'],
])('winnow rerank: rejects %j', async (argv, message) => {
  const { code, stderr } = await runCli(engine, argv);
  expect(code).toBe(2);
  expect(stderr).toContain(message);
});

test('winnow eval rerank: correlation and mean reciprocal rank, as text and as JSON', async () => {
  const path = join(folder, 'pairs.tsv');
  const pairs = documents.map((document, index) => `${5 - index}\t${query}${index}\t${document}\n`);
  writeFileSync(path, pairs.join(''));
  const argv = ['eval', 'rerank', reranker, '--data', path, '--candidates', '3'];
  const { code, stdout, stderr } = await runCli(engine, argv);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(stdout).toMatch(
    /^spearman -?\d\.\d{4} {2}pearson -?\d\.\d{4} {2}mrr@3 \d\.\d{4}\n3 pairs, 2 queries, \d+ tokens\n$/,
  );
  const json = JSON.parse((await runCli(engine, [...argv, '--json'])).stdout) as object;
  expect(json).toMatchObject({ model: 'golden bert', backend: 'wasm', numPairs: 3, numQueries: 2, numCandidates: 3 });
  const few = await runCli(engine, argv.slice(0, 5));
  expect(few.code).toBe(2);
  expect(few.stderr).toContain('pairs: expected at least 10, got 3');
  expect(await runCli(engine, ['eval', 'rerank', '--data', path])).toMatchObject({ code: 2 });
});

test('winnow batch and winnow worker: a --reranker answers lines of /v1/rerank', async () => {
  const lineOf = (custom_id: string, model: object): string =>
    `${JSON.stringify({ custom_id, method: 'POST', url: '/v1/rerank', body: { query, documents, ...model } })}\n`;
  const scores = expected.map(({ index, score }) => ({ index, relevance_score: score }));
  const resultOf = (line: string): unknown[] => {
    const { custom_id: id, response } = JSON.parse(line) as { custom_id: string; response: Response };
    return [id, response.body.model, response.body.results];
  };
  const path = join(folder, 'queries.jsonl');
  writeFileSync(path, lineOf('a', { model: 'cross' }) + lineOf('b', {}));
  const names = ['--reranker', reranker, '--reranker-id', 'cross', '-t', '1'];
  expect((await runCli(engine, ['batch', path, '--reranker', 'no-such.gguf'])).code).not.toBe(0);
  const batch = await runCli(engine, ['batch', path, ...names]);
  const begins = 'the requests or the model have changed: the answers so far are dropped';
  expect([batch.code, batch.stderr]).toEqual([0, expect.stringContaining(begins)]);
  const answers = readFileSync(join(folder, 'queries.output.jsonl'), 'utf8').trimEnd().split('\n');
  expect(answers.map(resultOf)).toEqual(['a', 'b'].map((id) => [id, 'cross', scores]));
  const demo = await runCli(engine, ['batch', path, '-o', join(folder, 'demo.jsonl')]);
  const message = '--reranker: expected a model for the lines of /v1/rerank, got none';
  expect([demo.code, demo.stderr]).toEqual([2, expect.stringContaining(message)]);

  const queue = join(folder, 'jobs.db');
  const store = await openSqliteJobStore(queue);
  await enqueueBatchLines(store, 'ranking', [readFileSync(path)]);
  const { code, stderr } = await runCli(engine, ['worker', '--queue', queue, '--until-empty', ...names]);
  expect([code, stderr]).toEqual([0, expect.stringMatching(/lines of cross, default-rerankers in .*, 2 at once\n/)]);
  expect(await store.counts('ranking')).toMatchObject({ completed: 2, failed: 0 });
  for await (const line of batchResults(store, 'ranking', 'output')) expect(resultOf(line)[2]).toEqual(scores);
  await store.close();
});

test('winnow inspect shows rerankers, and other commands say what they are', async () => {
  expect(await runCli(engine, ['inspect', reranker])).toMatchObject({ code: 0 });
  const refused = await runCli(engine, ['embed', reranker, '-p', 'x']);
  expect(refused.code).toBe(2);
  expect(refused.stderr).toContain('one with a classification head (cls.output.weight), which winnow rerank loads');
});
