/** `winnow batch` with the demo model: its files, and what is left after it was stopped. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as engine from '@winnow/engine';
import { openSqliteJobStore } from '@winnow/jobs/node';
import * as server from '@winnow/server';
import { repoRoot, testCoverage } from '@winnow/test-utils';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createFakeEngine } from './fake-engine.js';
import { lapseLeases } from './lapse-leases.js';
import { runCli, TestHost } from './run-cli.js';

const program = fileURLToPath(new URL('../dist/main.js', import.meta.url));

let folder: string;
let input: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'winnow-batch-'));
  input = join(folder, 'in.jsonl');
});
afterEach(() => rmSync(folder, { recursive: true }));

const lineOf = (custom_id: string, body: object, url = '/v1/chat/completions'): string =>
  `${JSON.stringify({ custom_id, method: 'POST', url, body })}\n`;
const ask = (text: string, max_tokens = 4) => ({
  messages: [{ role: 'user', content: text }],
  temperature: 0,
  max_tokens,
});

interface Result {
  readonly custom_id: string;
  readonly response: { readonly body: { readonly model: string } } | null;
  readonly error: { readonly code: string } | null;
}

const read = (name: string): Result[] =>
  readFileSync(join(folder, name), 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Result);
const idsOf = (name: string): string[] => read(name).map(({ custom_id: id }) => id);
const run = (...flags: readonly string[]) => runCli(engine, ['batch', input, '-t', '1', ...flags]);

test('answers each line, and isolates those that fail', async () => {
  const texts = [
    lineOf('a', ask('Hello')),
    'not JSON\n',
    lineOf('b', ask('Hello', -1)),
    lineOf('c', { prompt: 'Once' }, '/v1/completions'),
  ];
  writeFileSync(input, texts.join(''));
  const { code, stdout, stderr } = await run();
  expect([code, stdout]).toEqual([0, '']);
  expect(stderr).toMatch(/2 of 4 lines answered in .*in\.output\.jsonl, 2 failed \(.*in\.output\.errors\.jsonl\)\n/);
  expect(stderr).toMatch(
    /2 in [\d.]+ s: [\d.]+ lines\/s, \d+ prompt tokens \(\d+% from shared prefixes\), \d+ generated tokens\n/,
  );
  expect(idsOf('in.output.jsonl')).toEqual(['a', 'c']);
  expect(read('in.output.jsonl')[0]?.response?.body.model).toBe('winnow-tiny');
  expect(read('in.output.errors.jsonl').map(({ error }) => error?.code)).toEqual(['invalid_json_line', undefined]);
  expect(readdirSync(folder).toSorted()).toEqual(['in.jsonl', 'in.output.errors.jsonl', 'in.output.jsonl']);
});

test('answers as many lines at once as sessions fit', async () => {
  const numLines = 8;
  // each answer waits for the last line
  const begun = Promise.withResolvers<void>();
  const fake = createFakeEngine({
    beforePiece: () => {
      if (fake.prompts.length === numLines) begun.resolve();
      return begun.promise;
    },
  });
  writeFileSync(
    input,
    Array.from({ length: numLines }, (_, index) => lineOf(`${index}`, ask(`Hello ${index}`))).join(''),
  );
  const { code, stderr } = await runCli(fake.api, ['batch', input, '-q', '--max-sessions', String(numLines)]);
  expect([code, stderr]).toEqual([0, '']);
});

test('has names for its files and models, and figures as JSON', async () => {
  const vector = lineOf('v', { model: 'vectors', input: 'A storm' }, '/v1/embeddings');
  writeFileSync(input, lineOf('a', { ...ask('Hello'), model: 'gpt-4o-mini' }) + vector);
  const [output, errors] = [join(folder, 'answers.jsonl'), join(folder, 'failures.jsonl')];
  writeFileSync(errors, 'of an earlier run');
  const names = ['--model-id', 'gpt-4o-mini', '--embedding-model-id', 'vectors', '--pooling', 'mean'];
  const files = ['--output', output, '--errors', errors];
  const { code, stdout, stderr } = await run(...names, ...files, '--max-sessions', '2', '--json', '-q');
  expect([code, stderr]).toEqual([0, '']);
  expect(JSON.parse(stdout)).toMatchObject({ lines: 2, answered: 2, failed: 0, output, generatedTokens: 4 });
  expect(idsOf('answers.jsonl')).toEqual(['a', 'v']);
  expect(existsSync(errors)).toBe(false);
});

test('docs/guides/batch.md', async () => {
  const guide = readFileSync(join(repoRoot, 'docs', 'guides', 'batch.md'), 'utf8');
  const [, requests = ''] = /^```text\n(.*?)^```$/ms.exec(guide) ?? [];
  const [, shown = ''] = /^\$ winnow batch requests\.jsonl\n(.*?)^```$/ms.exec(guide) ?? [];
  input = join(folder, 'requests.jsonl');
  writeFileSync(input, requests);
  const { code, stderr } = await run();
  const pattern = shown
    .split('...')
    .map((text) => text.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&'))
    .join('.+');
  expect([code, stderr.replaceAll(`${folder}/`, '')]).toEqual([0, expect.stringMatching(new RegExp(`^${pattern}$`))]);
});

test('an empty file has an empty output, and needs no model', async () => {
  writeFileSync(input, '\n');
  const { code, stderr } = await run('-m', 'no-such-model.gguf');
  expect([code, stderr]).toEqual([0, expect.stringContaining('0 of 0 lines answered')]);
  expect(readFileSync(join(folder, 'in.output.jsonl'), 'utf8')).toBe('');
});

test('a missing file, and a model that cannot be loaded', async () => {
  expect(await run()).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('in.jsonl: expected a file of requests'),
  });
  writeFileSync(input, lineOf('a', ask('Hello')));
  expect((await run('-m', 'no-such-model.gguf')).code).not.toBe(0);
  // the same command with the default model starts again
  const again = await run();
  expect(again.stderr).toContain('the requests or the model have changed: the answers so far are dropped');
  expect(idsOf('in.output.jsonl')).toEqual(['a']);
});

test.each(['interrupt', 'terminate'] as const)('continues after %s', async (end) => {
  const ids = Array.from({ length: 12 }, (_, index) => `line-${index}`);
  writeFileSync(input, ids.map((id) => lineOf(id, ask(`Question of ${id}`, 12))).join(''));
  const host = new TestHost(engine);
  const ended = host.run(['batch', input, '-t', '1', '--max-sessions', '2']);
  await someDone(2);
  host[end]();
  const { code, stderr } = await ended;
  expect([code, stderr]).toEqual([130, expect.stringMatching(/interrupted|the same command continues/)]);
  expect(existsSync(join(folder, 'in.output.jsonl'))).toBe(false);
  const again = await run();
  expect(again.stderr).toMatch(/continuing: \d+ of 12 lines are done/);
  expect(idsOf('in.output.jsonl')).toEqual(ids);
});

test.skipIf(process.platform === 'win32')('loses no line and answers none twice when it is killed', async () => {
  const [numLines, killsAt] = testCoverage === 'full' ? [60, [10, 30]] : [20, [5]];
  const ids = Array.from({ length: numLines }, (_, index) => `line-${index}`);
  writeFileSync(input, ids.map((id) => lineOf(id, ask(`Question of ${id}`, 12))).join(''));
  const flags = ['-t', '1', '--max-sessions', '4'];
  for (const numDone of killsAt) {
    const child = spawn(process.execPath, [program, 'batch', input, ...flags], { stdio: 'ignore' });
    const exit = once(child, 'exit');
    await someDone(numDone);
    child.kill('SIGKILL');
    await exit;
    lapseLeases(join(folder, 'in.output.jsonl.jobs'), child.pid);
  }
  const { code, stderr } = await run('--max-sessions', '4');
  const message = `continuing: \\d+ of ${numLines} lines are done[^]*${numLines} of ${numLines} lines answered`;
  expect([code, stderr]).toEqual([0, expect.stringMatching(new RegExp(message))]);
  expect(idsOf('in.output.jsonl')).toEqual(ids);
  expect(readdirSync(folder).toSorted()).toEqual(['in.jsonl', 'in.output.jsonl']);
});

test.skipIf(process.platform === 'win32')('a batch of a server goes on after the server was killed', async () => {
  const ids = Array.from({ length: 20 }, (_, index) => `line-${index}`);
  const lines = ids.map((id) => lineOf(id, ask(`Question of ${id}`, 12))).join('');
  const argv = ['serve', '-t', '1', '--port', '0', '--batch-dir', join(folder, 'batches'), '-q'];
  const json = async (url: string, body?: FormData | object): Promise<Record<string, unknown>> => {
    const isForm = body instanceof FormData;
    const init = { method: 'POST', body: isForm ? body : JSON.stringify(body) };
    const headers = isForm ? {} : { headers: { 'content-type': 'application/json' } };
    const response = await fetch(url, body === undefined ? {} : { ...init, ...headers });
    expect(response.status).toBe(200);
    return (await response.json()) as Record<string, unknown>;
  };
  const child = spawn(process.execPath, [program, ...argv], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [text] = (await once(child.stdout.setEncoding('utf8'), 'data')) as [string];
  const firstUrl = text.trim().replace('listening on ', '');
  const form = new FormData();
  form.set('file', new Blob([lines]), 'requests.jsonl');
  form.set('purpose', 'batch');
  const { id: input_file_id } = await json(`${firstUrl}/v1/files`, form);
  const { id } = await json(`${firstUrl}/v1/batches`, {
    input_file_id,
    endpoint: '/v1/chat/completions',
    completion_window: '24h',
  });
  const doneAt = async (url: string): Promise<number> => {
    const { request_counts: counts } = await json(`${url}/v1/batches/${String(id)}`);
    return (counts as { completed: number }).completed;
  };
  while ((await doneAt(firstUrl)) < 5) await new Promise((resolve) => setTimeout(resolve, 5));
  child.kill('SIGKILL');
  await once(child, 'exit');
  lapseLeases(join(folder, 'batches', 'jobs.db'), child.pid);
  const second = new TestHost(engine, { server });
  const ended = second.run(argv);
  await second.untilShown('listening on ', '\n');
  const url = second.shown.trim().replace('listening on ', '');
  let batch = await json(`${url}/v1/batches/${String(id)}`);
  while (batch['status'] !== 'completed') {
    await new Promise((resolve) => setTimeout(resolve, 50));
    batch = await json(`${url}/v1/batches/${String(id)}`);
  }
  const output = await fetch(`${url}/v1/files/${String(batch['output_file_id'])}/content`);
  writeFileSync(join(folder, 'output.jsonl'), await output.text());
  expect(idsOf('output.jsonl')).toEqual(ids);
  second.terminate();
  expect((await ended).code).toBe(0);
});

/** Waits until the command has answered some lines. */
async function someDone(count: number): Promise<void> {
  const path = join(folder, 'in.output.jsonl.jobs');
  while (!existsSync(path)) await new Promise((resolve) => setTimeout(resolve, 20));
  const store = await openSqliteJobStore(path);
  for (let numDone = 0; numDone < count;) {
    await new Promise((resolve) => setTimeout(resolve, 5));
    const [batchId] = await store.batches();
    numDone = batchId === undefined ? 0 : (await store.counts(batchId)).completed;
  }
  await store.close();
}
