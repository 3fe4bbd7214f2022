/** A prompt cache on disk behind the server: kept over restarts, and apart for each API key. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openPromptStore } from '@winnow/engine';
import { expect, test } from 'vitest';
import { demoId, loadDemoModel, postJson, startServer } from './demo-server.js';

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
