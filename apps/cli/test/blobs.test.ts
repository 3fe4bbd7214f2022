/** Blobs of other machines: pages of prompts that servers share, and batches from a bucket to a bucket. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { startS3Server, type S3Server } from '@winnow/test-utils';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';

const program = fileURLToPath(new URL('../dist/main.js', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'winnow-cli-blobs-'));
let s3: S3Server;
let processes: ChildProcess[] = [];
beforeAll(async () => {
  s3 = await startS3Server();
});
afterEach(async () => {
  for (const child of processes) {
    if (child.exitCode !== null || child.signalCode !== null) continue;
    child.kill('SIGKILL');
    await once(child, 'exit');
  }
  processes = [];
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
  const argv = [
    'serve',
    '--port',
    '0',
    '-q',
    '-t',
    '1',
    '--api-key',
    'a',
    '--api-key',
    'b',
    '--cache-store',
    cacheStore,
  ];
  const env = { ...process.env, ...s3.environment };
  const child = spawn(process.execPath, [program, ...argv], { env, stdio: ['ignore', 'pipe', 'inherit'] });
  processes.push(child);
  let shown = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => (shown += text));
  while (!shown.includes('\n') && child.exitCode === null) await sleep(20);
  const url = shown.trim().replace('listening on ', '');
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
  processes.push(child);
  let stderr = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  const [code] = (await once(child, 'close')) as [number];
  expect(stderr).toContain(`1 of 2 lines answered in ${output}, 1 failed (s3://${s3.bucket}/batch/out.errors.jsonl)`);
  expect(code).toBe(0);
  expect(JSON.parse(s3.read('batch/out.jsonl'))).toMatchObject({ custom_id: 'x', response: { status_code: 200 } });
  expect(JSON.parse(s3.read('batch/out.errors.jsonl'))).toMatchObject({ custom_id: 'y' });
});
