import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { modelShape } from '../models/model-shapes.js';
import { syntheticModel } from '../models/synthetic-model.js';
import { BrowserProgram, type ProgramOptions } from './browser-program.js';
import { launchChromium, missingChromium } from './chromium.js';
import { descendantsCpuMs } from '../peer/process-tree.js';

/** A fake wllama: one token per character, two at the start, and a cache of the last prompt. Prompts with `!` fail. */
const fakeModule = `
let last = '';
export class Wllama {
  constructor(paths) { this.wasm = paths.default; }
  async loadModel([blob], { n_threads, n_ctx, n_gpu_layers }) {
    if (blob.size === 0 || n_ctx !== 128 || n_gpu_layers !== 0) throw new Error('other options');
    if ((await (await fetch(this.wasm)).text()) !== 'wasm') throw new Error('no wasm');
    this.threads = Math.min(n_threads, 4);
  }
  getNumThreads() { return this.threads; }
  async createCompletion({ prompt, max_tokens, cache_prompt, temperature }) {
    if (prompt.includes('!') || temperature !== 0) throw new Error('broken prompt');
    const numCached = cache_prompt && prompt === last ? prompt.length + 1 : 0;
    last = prompt;
    const predicted_n = prompt.length > 50 ? 1 : max_tokens;
    return { choices: [{ text: 'x' }], timings: { prompt_n: prompt.length + 2 - numCached, predicted_n } };
  }
}
`;

const name = missingChromium() === undefined ? 'in Chromium' : `in Chromium (${missingChromium()})`;

describe.skipIf(missingChromium() !== undefined)(name, () => {
  let folder: string;
  let browser: Browser;
  let modelPath: string;
  let wllama: ProgramOptions;
  const load = {
    ...{ contextSize: 128, threads: 2, batchSize: 16, kvDType: 'f16', attention: undefined, flashAttention: false },
  };
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'winnow-bench-browser-'));
    modelPath = await syntheticModel(modelShape('winnow-tiny'), 'f16', folder, () => undefined);
    const files = { '/wllama/index.js': join(folder, 'index.js'), '/wllama/wllama.wasm': join(folder, 'wllama.wasm') };
    writeFileSync(files['/wllama/index.js'], fakeModule);
    writeFileSync(files['/wllama/wllama.wasm'], 'wasm');
    wllama = { name: 'wllama', page: 'wllama-page', modelPath, files, load };
    browser = await launchChromium();
  });
  afterAll(async () => {
    await browser.close();
    rmSync(folder, { recursive: true, force: true });
  });

  test('Winnow: whole prompts, then tokens after a context', async () => {
    const winnow = { name: 'winnow', page: 'winnow-page', modelPath, files: {}, load } as const;
    const program = await BrowserProgram.open(browser, winnow);
    try {
      // a begin token, a space, and a token per letter
      const first = await program.prefill('abcdefgh');
      expect(first).toMatchObject({ numComputed: 10, numGenerated: 1 });
      expect(first.timeMs).toBeGreaterThan(0);
      expect((await program.prefill('zbcdefgh')).numComputed).toBe(10);
      const decoded = await program.decode('zbcdefgh', 4);
      expect(decoded).toMatchObject({ numComputed: 1, numGenerated: 4 });
      expect((await program.decode('zbcdefgh', 4)).text).toBe(decoded.text);
      await expect(program.decode('a'.repeat(200), 4)).rejects.toThrow('winnow in Chromium:');
    } finally {
      await program.dispose();
    }
  });

  test('wllama: the same prompts', async () => {
    const program = await BrowserProgram.open(browser, wllama);
    try {
      expect(await program.prefill('abcdefgh')).toMatchObject({ numComputed: 10, numGenerated: 1 });
      expect(await program.decode('abcdefgh', 4)).toMatchObject({ numComputed: 1, numGenerated: 4 });
      await expect(program.prefill('!')).rejects.toThrow(/wllama in Chromium: .*broken prompt/);
      await expect(program.decode('a'.repeat(60), 4)).rejects.toThrow('expected 4 tokens, got 1');
    } finally {
      await program.dispose();
    }
  });

  test('an unsupported thread count and a missing package are errors', async () => {
    await expect(BrowserProgram.open(browser, { ...wllama, load: { ...load, threads: 8 } })).rejects.toThrow(
      'expected 8 threads, it uses 4',
    );
    await expect(BrowserProgram.open(browser, { ...wllama, files: {} })).rejects.toThrow('wllama in Chromium:');
  });
});

describe.skipIf(process.platform !== 'linux')('processor time of descendants (Linux)', () => {
  test('grows by what a child uses', async () => {
    const before = descendantsCpuMs();
    const code =
      'const end = Date.now() + 1e6; while (process.cpuUsage().user < 2e5 && Date.now() < end); ' +
      "console.log('done'); setInterval(() => 0, 1e3)";
    const child = spawn(process.execPath, ['-e', code], { stdio: ['ignore', 'pipe', 'ignore'] });
    await once(child.stdout, 'data');
    // the counter of the system has steps of 10 ms, and `before` is up to one per process behind
    expect(descendantsCpuMs() - before).toBeGreaterThanOrEqual(150);
    child.kill();
    await once(child, 'exit');
  });
});
