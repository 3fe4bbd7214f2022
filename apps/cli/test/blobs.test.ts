/** Blobs in a bucket: pages of prompts that two servers of one process share, and batches of another process. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { createS3BlobStore } from '@winnow/blobs-s3';
import { demoModelUrl } from '@winnow/demo-model';
import * as engine from '@winnow/engine';
import * as server from '@winnow/server';
import { startS3Server, type S3Server } from '@winnow/test-utils';
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest';
import { runCli, TestHost, type CliRun } from './run-cli.js';

const program = fileURLToPath(new URL('../dist/main.js', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'winnow-cli-blobs-'));
let s3: S3Server;
beforeAll(async () => {
  s3 = await startS3Server();
});
afterAll(async () => {
  await s3.close();
  rmSync(folder, { recursive: true });
});

interface Answer {
  readonly text: string;
  readonly cachedTokens: number;
}

interface Replica {
  ask(key: string, prompt: string): Promise<Answer>;
  metric(name: string): Promise<number>;
}

async function startReplica(cacheStore: string): Promise<Replica> {
  for (const [name, value] of Object.entries(s3.environment)) vi.stubEnv(name, value);
  const keys = ['--api-key', 'a', '--api-key', 'b'];
  const host = new TestHost(engine, { server });
  const ended = host.run(['serve', '--port', '0', '-q', '-t', '1', ...keys, '--cache-store', cacheStore]);
  onTestFinished(async () => {
    host.terminate();
    expect(await ended).toMatchObject({ code: 0, stderr: '' });
  });
  await host.untilShown('listening on ', '\n');
  const url = host.shown.trim().replace('listening on ', '');
  return {
    async ask(key, prompt) {
      const response = await fetch(`${url}/v1/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${key}` },
        body: JSON.stringify({ model: 'winnow-tiny', prompt, max_tokens: 8, temperature: 0 }),
      });
      const { choices, usage } = (await response.json()) as {
        choices: { text: string }[];
        usage: { prompt_tokens_details: { cached_tokens: number } };
      };
      return { text: choices[0]?.text ?? '', cachedTokens: usage.prompt_tokens_details.cached_tokens };
    },
    async metric(name) {
      const text = await (await fetch(`${url}/metrics`, { headers: { authorization: 'Bearer a' } })).text();
      return Number(new RegExp(`^winnow_prompt_cache_${name}\\{.*\\} (\\d+)$`, 'm').exec(text)?.[1]);
    },
  };
}

const prompt = 'The old man looked at the sea and said nothing. '.repeat(20);

test.each(['a folder', 's3'])('a server finds the pages of another one in %s, for the same API key', async (kind) => {
  const store = kind === 's3' ? `s3://${s3.bucket}/pages` : join(folder, 'pages');
  const first = await startReplica(store);
  const computed = await first.ask('a', prompt);
  expect(computed.cachedTokens).toBe(0);
  let numStored = 0;
  while (numStored === 0 || numStored !== (await first.metric('stored_pages_total'))) {
    numStored = await first.metric('stored_pages_total');
    await sleep(300);
  }
  const second = await startReplica(store);
  const restored = await second.ask('a', prompt);
  expect(restored.text).toBe(computed.text);
  expect(restored.cachedTokens).toBeGreaterThan(100);
  expect(await second.metric('read_tokens_total')).toBe(restored.cachedTokens);
  const other = await second.ask('b', prompt);
  expect([other.text, other.cachedTokens]).toEqual([computed.text, 0]);
});

test('a model is read from a bucket: a file, one in parts, a folder', async () => {
  for (const [name, value] of Object.entries(s3.environment)) vi.stubEnv(name, value);
  const bucket = `s3://${s3.bucket}/models`;
  const store = createS3BlobStore(bucket);
  const upload = async (from: string, to: string, names = readdirSync(from)): Promise<void> => {
    for (const name of names) await store.write(`${to}${name}`, [readFileSync(join(from, name))]);
  };
  const demo = fileURLToPath(new URL('.', demoModelUrl));
  const parts = join(folder, 'parts');
  mkdirSync(parts);
  for (const flags of [[], ['--split-size', '3MB']]) {
    const path = join(parts, flags.length === 0 ? 'whole.gguf' : 'tiny.gguf');
    expect((await runCli(engine, ['convert', demo, path, ...flags, '-q'])).stderr).toBe('');
  }
  const part = readdirSync(parts).find((name) => /^tiny-00001-of-0000[2-9]\.gguf$/.test(name));
  expect(part).toBeDefined();
  await upload(parts, 'parts/');
  await upload(demo, 'folder/');
  const run = (model: string): Promise<CliRun> =>
    runCli(engine, ['run', model, '-p', 'The old man', '-n', '4', '--temperature', '0', '-q', '-t', '1']);
  const expected = await run(join(parts, 'whole.gguf'));
  expect(expected.stderr).toBe('');
  for (const model of ['parts/whole.gguf', `parts/${part}`]) expect(await run(`${bucket}/${model}`)).toEqual(expected);
  expect(await run(`${bucket}/folder/`)).toEqual(await run(demo));
  const none = await run(`${bucket}/none.gguf`);
  expect(none).toMatchObject({ code: 1, stdout: '' });
  expect(none.stderr).toContain(`${bucket}/none.gguf: no such content`);
});

test('a server keeps files and batches in a bucket, also when it is restarted in the middle', async () => {
  for (const [name, value] of Object.entries(s3.environment)) vi.stubEnv(name, value);
  const place = ['--batch-dir', `s3://${s3.bucket}/batches`, '--queue', join(folder, 'batches.db')];
  const start = async (): Promise<{ readonly url: string; stop(): Promise<CliRun> }> => {
    const host = new TestHost(engine, { server });
    const ended = host.run(['serve', '--port', '0', '-q', '-t', '1', '--batch-sessions', '1', ...place]);
    await host.untilShown('listening on ', '\n');
    const stop = (): Promise<CliRun> => {
      host.terminate();
      return ended;
    };
    return { url: `${host.shown.trim().replace('listening on ', '')}/v1`, stop };
  };
  const ids = Array.from({ length: 24 }, (_, index) => `line-${index}`);
  const lines = ids.map((custom_id) => {
    const body = { prompt: `Question of ${custom_id}`, max_tokens: 16, temperature: 0 };
    return `${JSON.stringify({ custom_id, method: 'POST', url: '/v1/completions', body })}\n`;
  });
  const first = await start();
  const form = new FormData();
  form.set('purpose', 'batch');
  form.set('file', new Blob(lines), 'lines.jsonl');
  const file = (await (await fetch(`${first.url}/files`, { method: 'POST', body: form })).json()) as { id: string };
  expect(s3.read(`batches/contents/${file.id}`)).toBe(lines.join(''));
  const asked = { input_file_id: file.id, endpoint: '/v1/completions', completion_window: '24h' };
  const headers = { 'content-type': 'application/json' };
  const created = await fetch(`${first.url}/batches`, { method: 'POST', headers, body: JSON.stringify(asked) });
  const { id } = (await created.json()) as Batch;
  const batch = async (url: string): Promise<Batch> => (await (await fetch(`${url}/batches/${id}`)).json()) as Batch;
  while ((await batch(first.url)).request_counts.completed < 2) await sleep(20);
  const before = await batch(first.url);
  expect(await first.stop()).toMatchObject({ code: 0, stderr: '' });
  expect(before).toMatchObject({ status: 'in_progress' });
  const second = await start();
  let after = await batch(second.url);
  while (after.status !== 'completed') {
    await sleep(20);
    after = await batch(second.url);
  }
  expect(after.request_counts).toEqual({ total: 24, completed: 24, failed: 0 });
  const output = await (await fetch(`${second.url}/files/${after.output_file_id}/content`)).text();
  const answered = output
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as { custom_id: string });
  expect(answered.map(({ custom_id }) => custom_id)).toEqual(ids);
  await second.stop();
});

interface Batch {
  readonly id: string;
  readonly status: string;
  readonly output_file_id?: string;
  readonly request_counts: { readonly total: number; readonly completed: number; readonly failed: number };
}

test('a batch goes from a bucket to a bucket', async () => {
  const lines = ['x', 'y'].map((custom_id) =>
    JSON.stringify({
      ...{ custom_id, method: 'POST', url: '/v1/completions' },
      body: { prompt: `Question of ${custom_id}`, max_tokens: 2, ...(custom_id === 'y' && { temperature: -1 }) },
    }),
  );
  s3.write('batch/in.jsonl', `${lines.join('\n')}\n`);
  const output = `s3://${s3.bucket}/batch/out.jsonl`;
  const argv = [program, 'batch', `s3://${s3.bucket}/batch/in.jsonl`, '--output', output, '-t', '1'];
  const env = { ...process.env, ...s3.environment };
  const child = spawn(process.execPath, argv, { env, cwd: folder, stdio: ['ignore', 'inherit', 'pipe'] });
  let stderr = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  const [code] = (await once(child, 'close')) as [number];
  expect(stderr).toContain(`1 of 2 lines answered in ${output}, 1 failed (s3://${s3.bucket}/batch/out.errors.jsonl)`);
  expect(code).toBe(0);
  expect(JSON.parse(s3.read('batch/out.jsonl'))).toMatchObject({ custom_id: 'x', response: { status_code: 200 } });
  expect(JSON.parse(s3.read('batch/out.errors.jsonl'))).toMatchObject({ custom_id: 'y' });
});
