/** Eviction of the least attended positions, and contexts beyond the trained length. */
import { memorySink, memorySource } from '@winnow/bytes';
import { demoModelUrl } from '@winnow/demo-model';
import { ArgumentError, CapacityError } from '@winnow/tensor';
import { testCoverage } from '@winnow/test-utils';
import { describe, expect, test } from 'vitest';
import { loadModel, type EngineEvent, type Eviction, type LoadOptions, type Model } from '../../src/index.js';
import { tinyFolder } from '../support/tiny-model.js';

const drawn = { temperature: 1, topK: 0, topP: 1, minP: 0, ignoreEos: true, seed: 5, overflow: 'evict' } as const;
const ids = (length: number, step = 7): number[] => Array.from({ length }, (_, index) => (index * step) % 20);

const sentences = [
  'The wind blew over the hills, and the rain fell on the roof of the old house by the river. ',
  'Nobody spoke for a long time, and the fire in the room burned low. ',
  'At last the captain rose and went to the window, where the ships lay at anchor in the bay. ',
  '"It is late," said the woman, "and the road is long." ',
];
const names = ['Alice', 'Peter', 'Susan', 'Henry', 'Clara', 'James'];

/** A code, three hundred unrelated tokens, and the question for the code. */
function lookUp(index: number): { readonly prompt: string; readonly code: string } {
  const name = names[index % names.length] as string;
  const code = String(10000 + ((index * 7919 + 1234) % 90000));
  const order = sentences.map((_, i) => sentences[(index + i) % sentences.length]).join('');
  const prompt = `The code of ${name} is ${code}. ${order.repeat(3)}What is the code of ${name}? The code of ${name} is`;
  return { prompt, code };
}

describe('the demo model asked for a code far outside the window', () => {
  const numAsked = testCoverage === 'full' ? 6 : 3;

  async function countRight(eviction: Eviction): Promise<number> {
    await using model = await loadModel(demoModelUrl, {
      context: 192,
      batchSize: 16,
      maxSessions: 1,
      threads: 1,
      kvCache: { eviction },
    });
    let numRight = 0;
    for (let index = 0; index < numAsked; index++) {
      const { prompt, code } = lookUp(index);
      const options = { temperature: 0, maxTokens: 8, overflow: 'evict' } as const;
      const { text, evictedTokens } = await model.generate(prompt, options).result();
      expect(evictedTokens).toBeGreaterThan(100);
      if (text.includes(code)) numRight++;
    }
    return numRight;
  }

  test('least-attended eviction recalls the code, a window of the same size does not', async () => {
    expect(await countRight('oldest')).toBe(0);
    expect(await countRight('least-attended')).toBeGreaterThan(numAsked / 2);
  });

  test('memory use stays that of the context, however long generation runs', async () => {
    await using model = await loadModel(demoModelUrl, {
      context: 128,
      maxSessions: 1,
      threads: 1,
      kvCache: { eviction: 'least-attended' },
    });
    const numGenerated = testCoverage === 'full' ? 700 : 300;
    using session = model.createSession();
    let mostBlocks = 0;
    for await (const _ of session.generate('The old man', { ...drawn, maxTokens: numGenerated })) {
      mostBlocks = Math.max(mostBlocks, model.metrics().cache.numUsedBlocks);
    }
    expect(mostBlocks).toBe(2);
    expect(session.tokens.length).toBeGreaterThan(numGenerated);
    expect(model.metrics().cache.numEvictedTokens).toBe(session.tokens.length - 128);
  });
});

const loadEvicting = async (options: LoadOptions = {}): Promise<Model> =>
  loadModel(await tinyFolder(), { context: 64, maxSessions: 3, kvCache: { eviction: 'least-attended' }, ...options });

const tokensOf = async (model: Model, prompt: number[]): Promise<readonly number[]> =>
  (await model.generate(prompt, { ...drawn, maxTokens: 150 }).result()).tokens;

describe('least attended', () => {
  test('it evicts other positions than the oldest', async () => {
    await using model = await loadEvicting();
    await using other = await loadEvicting({ kvCache: { eviction: 'oldest' } });
    expect(await tokensOf(model, ids(30))).not.toEqual(await tokensOf(other, ids(30)));
  });

  test('concurrent sessions give the tokens of running alone; a fork diverges', async () => {
    await using model = await loadEvicting();
    const prompts = [ids(30), ids(90, 3), [...ids(30), 4, 5]];
    const alone: (readonly number[])[] = [];
    for (const prompt of prompts) alone.push(await tokensOf(model, prompt));
    expect(await Promise.all(prompts.map((prompt) => tokensOf(model, prompt)))).toEqual(alone);
    expect(model.metrics().steps.numSharedSteps).toBeGreaterThan(0);

    using session = model.createSession();
    const first = await session.generate(ids(30), { ...drawn, maxTokens: 60 }).result();
    using fork = session.fork();
    const goesOn = await fork.resume({ ...drawn, seed: 9, maxTokens: 50 }).result();
    const rest = await session.resume({ maxTokens: 90 }).result();
    expect([...first.tokens, ...rest.tokens]).toEqual(alone[0]);
    expect(goesOn.tokens).not.toEqual(rest.tokens.slice(0, 50));
  });

  test('a saved session keeps its attention mass', async () => {
    const whole = await loadEvicting();
    const expected = await tokensOf(whole, ids(30));
    const session = whole.createSession();
    const first = await session.generate(ids(30), { ...drawn, maxTokens: 70 }).result();
    const sink = memorySink();
    await session.save(sink);
    await whole.dispose();
    const source = memorySource(sink.toBytes().slice());
    await using model = await loadEvicting();
    using restored = await model.restoreSession(source);
    const rest = await restored.resume({ maxTokens: 80 }).result();
    expect([...first.tokens, ...rest.tokens]).toEqual(expected);
    await using other = await loadEvicting({ kvCache: { eviction: 'oldest' } });
    await expect(other.restoreSession(memorySource(sink.toBytes().slice()))).rejects.toThrow(/eviction/);
  });
});

describe('limits of eviction', () => {
  test('generation is rejected when every position is protected, and the session remains usable', async () => {
    await using model = await loadEvicting({ kvCache: { eviction: { recentTokens: 60, firstTokens: 8 } } });
    using session = model.createSession();
    const generation = session.generate(ids(30), { ...drawn, maxTokens: 100 }).result();
    const error = await generation.catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(CapacityError);
    expect((error as CapacityError).message).toMatch(/protected/);
    expect(session.tokens).toHaveLength(64);
    await session.generate(ids(20), { ...drawn, maxTokens: 10 }).result();
  });

  test.each([2, 3, 5, 8, 17])('contexts of %i tokens', async (contextSize) => {
    await using model = await loadEvicting({ context: contextSize });
    const result = await model.generate(ids(30), { ...drawn, maxTokens: 50 }).result();
    expect(result.tokens).toHaveLength(50);
    expect(30 + 49 - result.evictedTokens).toBeLessThanOrEqual(contextSize);
  });

  test('rejects other attention policies, tiers and invalid numbers', async () => {
    const refused: LoadOptions[] = [
      { attention: 'streaming:window=16,sinks=4' },
      { trace: { attention: true } },
      { context: 2048, kvCache: { eviction: 'least-attended', budget: 120_000, offload: { memory: 2 ** 20 } } },
      { kvCache: { eviction: 'newest' as never } },
      { kvCache: { eviction: { recentTokens: -1 } } },
      { kvCache: { eviction: { firstTokens: 0.5 } } },
    ];
    for (const options of refused) await expect(loadEvicting(options)).rejects.toThrow(ArgumentError);
  });
});

describe('beyond the trained context', () => {
  async function notices(options: LoadOptions, maxTokens: number): Promise<string[]> {
    const events: EngineEvent[] = [];
    const folder = await tinyFolder({ config: { max_position_embeddings: 100 } });
    await using model = await loadModel(folder, {
      maxSessions: 1,
      ...options,
      onEvent: (event) => void events.push(event),
    });
    for (const overflow of ['stop', 'slide', 'slide'] as const) {
      await model.generate(ids(9), { ignoreEos: true, maxTokens, overflow }).result();
    }
    return events.flatMap((event) => (event.kind === 'notice' ? [event.text] : []));
  }

  test('one notice: at load time, or when a sequence gets there', async () => {
    expect(await notices({ context: 100 }, 80)).toEqual([]);
    expect(await notices({ context: 101 }, 5)).toEqual([expect.stringMatching(/101 tokens.*100/)]);
    expect(await notices({ context: 64 }, 150)).toEqual([expect.stringMatching(/101 tokens.*100/)]);
    // distances stay within the window
    expect(await notices({ context: 200, attention: 'streaming:window=32,sinks=4' }, 150)).toEqual([]);
  });
});
