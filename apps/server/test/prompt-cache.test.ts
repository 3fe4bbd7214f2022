/** A prompt cache on disk behind the server: kept over restarts, and apart for each API key. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openPromptStore } from '@winnow/engine';
import type { BlobStore } from '@winnow/jobs';
import { createFolderBlobStore } from '@winnow/jobs/node';
import { expect, test } from 'vitest';
import { createBlobPromptStore } from '../src/index.js';
import { demoId, loadDemoModel, postJson, startServer, until } from './demo-server.js';

const prompt = 'The old man looked at the sea and said nothing. '.repeat(20);

test('pages of one API key are found after a restart, by this key alone unless prefixes are shared', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'winnow-server-'));
  const ask = async (key: string, sharePrefixes = false): Promise<number> => {
    const promptCache = await openPromptStore(folder, { maxBytes: 1e9 });
    await using model = await loadDemoModel({ promptCache });
    const demo = await startServer({ models: [{ id: demoId, model }], apiKeys: ['a', 'b'], sharePrefixes });
    const headers = { authorization: `Bearer ${key}` };
    const response = await postJson(`${demo.url}/v1/completions`, { model: demoId, prompt, max_tokens: 1 }, headers);
    const { usage } = (await response.json()) as { usage: { prompt_tokens_details: { cached_tokens: number } } };
    const metrics = await (await fetch(`${demo.url}/metrics`, { headers })).text();
    const numRead = /^winnow_prompt_cache_read_tokens_total\{.*\} (\d+)$/m.exec(metrics)?.[1];
    expect(Number(numRead)).toBe(usage.prompt_tokens_details.cached_tokens);
    await demo.close();
    return usage.prompt_tokens_details.cached_tokens;
  };
  try {
    expect(await ask('a')).toBe(0);
    expect(await ask('b')).toBe(0);
    expect(await ask('a')).toBeGreaterThan(0);
    expect(await ask('a', true)).toBe(0);
    expect(await ask('b', true)).toBeGreaterThan(0);
  } finally {
    await rm(folder, { recursive: true });
  }
});

/** Answers nothing, as a machine that has lost its network. */
function hangingStore(): BlobStore & { numCalls: number } {
  const never = new Promise<never>(() => {});
  const store = {
    ...{ name: 'gone', canList: true, canResume: true, numCalls: 0 },
    ...{ stat: () => never, delete: () => never, list: () => never },
    write(): Promise<never> {
      store.numCalls++;
      return never;
    },
    read(): AsyncIterable<Uint8Array> {
      store.numCalls++;
      return { [Symbol.asyncIterator]: () => ({ next: () => never }) };
    },
  };
  return store;
}

test('a store that does not answer costs one request a limited time, and is left alone for a while', async () => {
  const blobs = hangingStore();
  let nowMs = 0;
  const promptCache = createBlobPromptStore(blobs, { timeoutMs: 20, pauseMs: 1000, now: () => nowMs });
  await using model = await loadDemoModel({ promptCache });
  const demo = await startServer({ models: [{ id: demoId, model }] });
  const failures = async (): Promise<string | undefined> =>
    /^winnow_prompt_cache_failures_total\{.*\} (\d+)$/m.exec(await (await fetch(`${demo.url}/metrics`)).text())?.[1];
  const ask = (text: string): Promise<Response> =>
    postJson(`${demo.url}/v1/completions`, { model: demoId, prompt: text, max_tokens: 1 });
  expect((await ask(prompt)).status).toBe(200);
  expect([await failures(), blobs.numCalls]).toEqual(['1', 1]);
  expect((await ask(prompt.toUpperCase())).status).toBe(200);
  expect([await failures(), blobs.numCalls]).toEqual(['1', 1]);
  nowMs = 1001;
  await ask(prompt.toLowerCase());
  await until(() => blobs.numCalls > 1);
  await until(async () => Number(await failures()) > 1);
  await demo.close();
});

test('pages in a blob store are written once, and found by others', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'winnow-pages-'));
  try {
    const [first, second] = [0, 1].map(() => createBlobPromptStore(createFolderBlobStore(folder)));
    const key = '0'.repeat(64);
    expect([await first?.read(key), first?.has(key)]).toEqual([undefined, false]);
    await first?.write(key, Uint8Array.of(1, 2));
    await second?.write(key, Uint8Array.of(3)); // keys are hashes of what decides the content
    expect([...((await second?.read(key)) ?? [])]).toEqual([1, 2]);
    expect([first?.has(key), second?.statistics()]).toEqual([true, { numPages: 1, usedBytes: 2 }]);
    await first?.remove(key);
    expect([first?.has(key), await second?.read(key), second?.has(key)]).toEqual([false, undefined, false]);
  } finally {
    await rm(folder, { recursive: true });
  }
});
