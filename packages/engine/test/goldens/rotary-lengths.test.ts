/** Frequencies that depend on the length of the sequence, against transformers with its cache: LongRoPE and dynamic NTK. */
import { memorySink, memorySource } from '@winnow/bytes';
import { bytesSection, openSession, writeSession } from '@winnow/kv-cache';
import { type Backend } from '@winnow/ops';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadModel, type LoadOptions, type Model } from '../../src/index.js';
import { useBackends } from '../support/backends.js';
import { archPath, decodeFloats, maxDifference, readJson } from '../support/golden-files.js';

interface Prompt {
  readonly tokens: readonly number[];
  readonly positions: readonly number[];
  readonly greedy: readonly number[];
}

const backends = useBackends();

const pathOf = (name: string, file: string): string => archPath(name, file) as string;
const promptsOf = (name: string): readonly Prompt[] =>
  readJson<{ prompts: Prompt[] }>(pathOf(name, 'golden.json')).prompts;
/** The prompt of 61 tokens, which its greedy ids take beyond the 64 of the models, and the one of 150. */
const crossing = 2;
const long = 3;
const greedyOf = (count: number) => ({ temperature: 0, maxTokens: count, ignoreEos: true }) as const;

function load(name: string, options: LoadOptions = {}): Promise<Model> {
  const backend = backends['WebAssembly'] as Backend;
  return loadModel(pathOf(name, 'hf'), { context: 256, maxSessions: 3, backend, ...options });
}

describe('llama-dynamic', () => {
  test.each([
    ['WebAssembly', [1, 7, 256]],
    ['reference', [7]],
  ])('%s: log-probabilities and greedy ids in steps of %j', async (backendName, batchSizes) => {
    const model = await load('llama-dynamic', { backend: backends[backendName] as Backend });
    const exact = readJson<{ logprobs: string[][] }>(pathOf('llama-dynamic', 'exact.json')).logprobs;
    for (const batchSize of batchSizes) {
      for (const [index, { tokens, positions }] of promptsOf('llama-dynamic').entries()) {
        const actual = await model.logprobs(tokens, { positions, batchSize });
        const worst = actual.map((row, at) => maxDifference(row, decodeFloats(exact[index]?.[at] as string)));
        expect(Math.max(...worst)).toBeLessThan(5e-4);
      }
    }
    for (const { tokens, greedy } of promptsOf('llama-dynamic')) {
      const { tokens: actual } = await model.generate(tokens, greedyOf(greedy.length)).result();
      expect(actual).toEqual(greedy);
    }
    await model.dispose();
  });

  test('contexts beyond the factor are rejected', async () => {
    await expect(load('llama-dynamic', { context: 257 })).rejects.toThrow(/context: expected at most 256/);
  });

  test('up to the trained context the frequencies are those of the model', async () => {
    const [short, model] = [await load('llama-dynamic', { context: 64 }), await load('llama-dynamic')];
    const { tokens } = promptsOf('llama-dynamic')[crossing] as Prompt;
    const [a, b] = [await short.logprobs(tokens), await model.logprobs(tokens)];
    expect(a[0]).toEqual(b[0]);
    await Promise.all([short.dispose(), model.dispose()]);
  });
});

describe.each(['phi3-lengths', 'llama-dynamic'])('%s', (name) => {
  let model: Model;
  beforeAll(async () => {
    model = await load(name);
  });
  afterAll(() => model.dispose());

  test('neither a session nor a shared prefix keeps keys of another rotation', async () => {
    const { tokens, greedy } = promptsOf(name)[long] as Prompt;
    const short = tokens.slice(0, 48);
    const [session, other] = [model.createSession(), model.createSession()];
    // the page of the longest short prompt is shared only with prompts that are rotated alike
    await other.generate(tokens.slice(0, 64), greedyOf(1)).result();
    await session.generate(short, greedyOf(1)).result();
    const result = await session.generate(tokens, greedyOf(greedy.length)).result();
    expect(result).toMatchObject({ tokens: greedy, cachedTokens: 0 });
    expect((await model.generate(tokens, greedyOf(1)).result()).cachedTokens).toBeGreaterThan(100);
    const again = await session.generate(tokens.slice(0, 49), greedyOf(4)).result();
    const fresh = await load(name);
    expect(again.tokens).toEqual((await fresh.generate(tokens.slice(0, 49), greedyOf(4)).result()).tokens);
    session.dispose();
    other.dispose();
    await fresh.dispose();
  });

  test.each([1, 8])('a generation that is saved after %i tokens and resumed equals one', async (numFirst) => {
    for (const index of [crossing, long]) {
      const { tokens, greedy } = promptsOf(name)[index] as Prompt;
      const session = model.createSession();
      await session.generate(tokens, greedyOf(numFirst)).result();
      const sink = memorySink();
      await session.save(sink);
      session.dispose();
      const restored = await model.restoreSession(memorySource(sink.toBytes()));
      const rest = await restored.resume({ maxTokens: greedy.length - numFirst }).result();
      expect(rest.tokens).toEqual(greedy.slice(numFirst));
      restored.dispose();
    }
  });

  test('drafts do not pass the length at which the rotation changes', async () => {
    const drafting = await load(name, { speculative: 'lookup' });
    for (const { tokens, greedy } of promptsOf(name)) {
      const { tokens: actual } = await drafting.generate(tokens, greedyOf(greedy.length)).result();
      expect(actual).toEqual(greedy);
    }
    await drafting.dispose();
  });
});

test.each(['phi3-lengths', 'llama-dynamic'])('%s: a session with another rotation is refused', async (name) => {
  await using model = await load(name);
  using session = model.createSession();
  await session.generate((promptsOf(name)[long] as Prompt).tokens, greedyOf(1)).result();
  const sink = memorySink();
  await session.save(sink);
  const saved = await openSession(memorySource(sink.toBytes()));
  const sections = await Promise.all(
    saved.sections.map(async (section) => bytesSection(section.name, await saved.readAll(section.name))),
  );
  for (const rotaryKey of [2, 64, 257, 1e6, -1, 0.5]) {
    const forged = memorySink();
    const metadata = { ...(saved.metadata as object), rotaryKey } as typeof saved.metadata;
    await writeSession(forged, { ...saved, metadata, sections });
    const restored = model.restoreSession(memorySource(forged.toBytes().slice()));
    await expect(restored).rejects.toThrow('expected a rotaryKey of this model');
  }
});
