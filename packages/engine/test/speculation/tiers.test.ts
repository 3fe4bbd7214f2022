/** Drafts while pages are offloaded give the tokens and log-probabilities of plain decoding, bit for bit. */
import { createWasmBackend } from '@winnow/backend-wasm';
import { fastClock, sampled } from '@winnow/test-utils';
import { describe, expect, test } from 'vitest';
import { loadModel, type GeneratedToken, type LoadOptions, type Model, type Speculative } from '../../src/index.js';
import { coldFilesInMemory } from '../support/in-memory.js';
import { hasNative } from '../support/native.js';
import { tinyLlama } from '../support/tiny-llama.js';

/** Bytes of a block: 2 layers, 2 heads of 32, 64 slots in f32, and their positions. */
const blockBytes = 64 * (2 * 2 * 2 * 32 * 4 + 4);
/** Text that repeats itself with variations: some drafts are right, others wrong. */
const prompt = Array.from({ length: 600 }, (_, index) => (index % 23 === 5 ? index % 60 : ((index % 11) * 7) % 60));
const backends = (await hasNative()) ? [false, true] : [false];

/** A model whose pool holds few blocks of a session, 2 more in memory, and the others in a file. */
function load(numThreads: number, native: boolean, options: LoadOptions): Promise<Model> {
  const numBlocks = options.attention === undefined ? 6 : 10; // a window has to be in the pool
  const createBackend = () => createWasmBackend({ numThreads, native, minSharedWork: 0, maxMemoryBytes: 2 ** 27 });
  const offload = { memory: 2 * blockBytes, folder: coldFilesInMemory };
  const kvCache = { budget: numBlocks * blockBytes, offload, prefixSharing: false };
  return tinyLlama().then((model) =>
    loadModel(model, { context: 1024, maxSessions: 1, now: fastClock(), createBackend, kvCache, ...options }),
  );
}

async function generate(model: Model, speculative: Speculative, temperature: number) {
  // enough tokens for the expected number outside the pool
  const maxTokens = model.attention === 'dense' ? 120 : 200;
  const options = {
    temperature,
    topK: 0,
    topP: 1,
    minP: 0,
    seed: 7,
    numTopLogprobs: 2,
    ignoreEos: true,
    maxTokens,
  };
  const generation = model.generate(prompt, { ...options, speculative });
  const tokens: GeneratedToken[] = [];
  for await (const token of generation) tokens.push(token);
  return { tokens, speculation: (await generation.result()).speculation };
}

const cases: Readonly<Record<string, LoadOptions>> = {
  lookup: { speculative: 'lookup' },
  'self, streaming': { speculative: 'self=streaming:window=64,sinks=4' },
  'self, dense over the pages in the pool': { speculative: 'self=dense' },
  'streaming target': { speculative: 'lookup', attention: 'streaming:window=100,sinks=4' },
};

describe.each(backends)('native: %s', (native) => {
  const combinations = Object.keys(cases).flatMap((name) => [1, 3].map((numThreads) => ({ name, numThreads })));
  test.each(sampled(combinations, 3, native ? 1 : 0))('$name, $numThreads threads', async ({ name, numThreads }) => {
    const model = await load(numThreads, native, cases[name] as LoadOptions);
    const kind = name.startsWith('self') ? 'self' : 'lookup';
    for (const temperature of [0, 0.2]) {
      const plain = await generate(model, 'off', temperature);
      expect(model.metrics().tiers?.numDemotedTokens).toBeGreaterThan(250);
      const drafted = await generate(model, kind, temperature);
      expect(drafted.tokens).toEqual(plain.tokens);
      expect(drafted.speculation?.numAcceptedTokens).toBeGreaterThan(0);
      expect(drafted.speculation?.numDraftedTokens).toBeGreaterThan(drafted.speculation?.numAcceptedTokens as number);
    }
    await model.dispose();
  });
});
