/** Sessions on a tiny model: prefix reuse, limits, streams, aborts, exclusion. */
import { ArgumentError, CapacityError, ReleasedError } from '@winnow/tensor';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadModel, type GeneratedToken, type Model } from '../../src/index.js';
import { archPath } from '../support/golden-files.js';
import { greedy, ids } from '../support/prompts.js';

const path = archPath('llama', 'model.gguf') as string;
let model: Model;
beforeAll(async () => {
  model = await loadModel(path, { context: 192, maxSessions: 3, kvCache: { prefixSharing: false } });
});
afterAll(() => model.dispose());

describe('prefix reuse', () => {
  test('a prompt that extends the cached tokens computes only new tokens, with the same result', async () => {
    using session = model.createSession();
    const first = await session.generate(ids(50), { ...greedy, maxTokens: 10 }).result();
    expect(first.cachedTokens).toBe(0);
    const longer = [...ids(50), ...first.tokens, 5, 6, 7];
    const second = await session.generate(longer, { ...greedy, maxTokens: 10 }).result();
    expect(second.cachedTokens).toBe(59); // the last generated token has not been run
    const fresh = await model.generate(longer, { ...greedy, maxTokens: 10 }).result();
    expect(second.tokens).toEqual(fresh.tokens);
  });

  test('a prompt that diverges in the middle truncates the cache', async () => {
    using session = model.createSession();
    await session.generate(ids(100), { ...greedy, maxTokens: 5 }).result();
    const other = [...ids(70), ...ids(20, 11)];
    const result = await session.generate(other, { ...greedy, maxTokens: 10 }).result();
    expect(result.cachedTokens).toBe(70);
    const fresh = await model.generate(other, { ...greedy, maxTokens: 10 }).result();
    expect(result.tokens).toEqual(fresh.tokens);
  });

  test('the same prompt recomputes its last token only', async () => {
    using session = model.createSession();
    const first = await session.generate(ids(40), { ...greedy, maxTokens: 4 }).result();
    const again = await session.generate(ids(40), { ...greedy, maxTokens: 4 }).result();
    expect(again.cachedTokens).toBe(39);
    expect(again.tokens).toEqual(first.tokens);
  });

  test('reset clears the cache', async () => {
    using session = model.createSession();
    await session.generate(ids(40), { ...greedy, maxTokens: 1 }).result();
    session.reset();
    expect(session.tokens).toEqual([]);
    const again = await session.generate(ids(40), { ...greedy, maxTokens: 1 }).result();
    expect(again.cachedTokens).toBe(0);
  });
});

test('cached prefixes are shared among sessions of the same salt', async () => {
  await using sharing = await loadModel(path, { context: 192, maxSessions: 2, kvCache: { capacity: 1024 } });
  const cached = async (cacheSalt?: string): Promise<number> => {
    const options = cacheSalt === undefined ? {} : { cacheSalt };
    return (await sharing.generate(ids(130), { ...greedy, ...options, maxTokens: 1 }).result()).cachedTokens;
  };
  expect([await cached('a'), await cached('b'), await cached(), await cached('')]).toEqual([0, 0, 0, 0]);
  expect([await cached('a'), await cached('b'), await cached(), await cached('')]).toEqual([128, 128, 128, 128]);
  await sharing.logprobs(ids(130), { cacheSalt: 'scored' });
  expect([await cached('scored'), await cached('other')]).toEqual([128, 0]);
  expect(() => sharing.createSession({ salt: 'a' } as object)).toThrow(/cacheSalt/);
});

describe('limits', () => {
  test('a prompt without room for a token is rejected, or truncated by a policy that reports the dropped tokens', async () => {
    const generate = (overflow: 'error' | 'truncate-start' | 'truncate-middle') =>
      model.generate(ids(200), { ...greedy, maxTokens: 1, overflow }).result();
    await expect(generate('error')).rejects.toThrow(CapacityError);
    const start = await generate('truncate-start');
    expect([start.promptTokens, start.droppedTokens]).toEqual([191, 9]);
    const kept = [0, ...ids(200).slice(10)];
    const same = await model.generate(kept, { ...greedy, maxTokens: 1 }).result();
    expect(start.tokens).toEqual(same.tokens);
    const middle = await generate('truncate-middle');
    expect(middle.droppedTokens).toBe(9);
  });

  test('generation ends when the context is full', async () => {
    const result = await model.generate(ids(180), greedy).result();
    expect(result.finishReason).toBe('context');
    expect(result.promptTokens + result.tokens.length).toBe(192);
  });

  test('maxTokens, including 0', async () => {
    expect((await model.generate(ids(5), { ...greedy, maxTokens: 3 }).result()).tokens).toHaveLength(3);
    const none = await model.generate(ids(5), { ...greedy, maxTokens: 0 }).result();
    expect([none.tokens, none.finishReason, none.promptTokens]).toEqual([[], 'length', 5]);
    await expect(model.generate(ids(5), { maxTokens: 1.5 }).result()).rejects.toThrow(ArgumentError);
  });

  test('too many sessions are rejected until one is disposed', () => {
    const open = [model.createSession(), model.createSession(), model.createSession()];
    expect(() => model.createSession()).toThrow(CapacityError);
    open.pop()?.dispose();
    open.push(model.createSession());
    for (const session of open) session.dispose();
  });

  test('sessions get a typed error when the shared cache is full, and lose no tokens', async () => {
    const open = [model.createSession(), model.createSession(), model.createSession()];
    const [a, b, c] = open as [(typeof open)[0], (typeof open)[0], (typeof open)[0]];
    await a.generate(ids(180), { ...greedy, maxTokens: 1 }).result();
    await b.generate(ids(100), { ...greedy, maxTokens: 1 }).result();
    await expect(c.generate(ids(100), { ...greedy, maxTokens: 1 }).result()).rejects.toThrow(CapacityError);
    a.dispose();
    const late = await c.generate(ids(100), { ...greedy, maxTokens: 1 }).result();
    expect(late.tokens).toHaveLength(1);
    b.dispose();
    c.dispose();
  });

  test('token ids outside the vocabulary and empty prompts are rejected', async () => {
    await expect(model.generate([1, 320]).result()).rejects.toThrow(
      'prompt[1]: expected a token id below 320, got 320',
    );
    await expect(model.generate([]).result()).rejects.toThrow(ArgumentError);
    await expect(model.generate([{ role: 'user', content: 'x' }]).result()).rejects.toThrow(/no chat template/);
  });

  test('an empty text counts as one token: BOS', () => {
    expect([...model.encodePrompt('')]).toEqual([model.tokenizer.bosId]);
  });
});

describe('streams', () => {
  test('iterating gives the same tokens and text as the result, also when it is requested afterwards', async () => {
    const generation = model.generate('the dog', { ...greedy, maxTokens: 20, numTopLogprobs: 3 });
    const parts: GeneratedToken[] = [];
    for await (const part of generation) parts.push(part);
    const result = await generation.result();
    expect(parts.map(({ tokenId }) => tokenId)).toEqual(result.tokens);
    expect(parts.map(({ text }) => text).join('')).toBe(result.text);
    for (const { tokenId, logprob, topLogprobs } of parts) {
      expect(topLogprobs).toHaveLength(3);
      expect(topLogprobs[0]).toEqual({ tokenId, logprob }); // greedy picks the top token
      expect(logprob).toBeLessThan(0);
    }
    const [expected] = await model.logprobs([...model.encodePrompt('the dog')]);
    expect(Math.abs((parts[0]?.logprob as number) - (expected?.[parts[0]?.tokenId as number] as number))).toBeLessThan(
      1e-5,
    );
  });

  test('the output ends before a stop sequence', async () => {
    const { text } = await model.generate('the dog', { ...greedy, maxTokens: 20 }).result();
    const stop = text.slice(5, 8);
    const stopped = await model.generate('the dog', { ...greedy, maxTokens: 20, stop: [stop] }).result();
    expect(stopped.finishReason).toBe('stop');
    expect(stopped.text).toBe(text.slice(0, text.indexOf(stop)));
  });

  test('leaving the loop early keeps the session usable', async () => {
    using session = model.createSession();
    for await (const _token of session.generate(ids(10), { ...greedy, maxTokens: 50 })) break;
    const result = await session.generate(ids(10), { ...greedy, maxTokens: 5 }).result();
    const fresh = await model.generate(ids(10), { ...greedy, maxTokens: 5 }).result();
    expect(result.tokens).toEqual(fresh.tokens);
  });

  test('prompt progress ends at the whole prompt', async () => {
    const seen: number[] = [];
    const onPromptProgress = ({ processedTokens, totalTokens }: { processedTokens: number; totalTokens: number }) => {
      expect(totalTokens).toBe(150);
      seen.push(processedTokens);
    };
    await model.generate(ids(150), { ...greedy, maxTokens: 1, onPromptProgress }).result();
    expect(seen).toEqual([0, 64, 128, 150]);
  });
});

describe('aborts', () => {
  test('an aborted generation throws the reason, and the session remains usable', async () => {
    using session = model.createSession();
    const controller = new AbortController();
    const run = async (): Promise<void> => {
      let count = 0;
      for await (const _token of session.generate(ids(30), { ...greedy, signal: controller.signal })) {
        if (++count === 3) controller.abort(new Error('enough'));
      }
    };
    await expect(run()).rejects.toThrow('enough');
    const again = await session.generate(ids(30), { ...greedy, maxTokens: 8 }).result();
    const fresh = await model.generate(ids(30), { ...greedy, maxTokens: 8 }).result();
    expect(again.tokens).toEqual(fresh.tokens);
  });

  test('aborting during prefill keeps the computed tokens', async () => {
    using session = model.createSession();
    const controller = new AbortController();
    const generation = session.generate(ids(150), {
      ...greedy,
      signal: controller.signal,
      onPromptProgress: ({ processedTokens }) => {
        if (processedTokens === 64) controller.abort();
      },
    });
    await expect(generation.result()).rejects.toThrow();
    expect(session.tokens).toHaveLength(64);
    const again = await session.generate(ids(150), { ...greedy, maxTokens: 4 }).result();
    expect(again.cachedTokens).toBe(64);
    session.reset(); // makes room for a second prompt of this length
    const fresh = await model.generate(ids(150), { ...greedy, maxTokens: 4 }).result();
    expect(again.tokens).toEqual(fresh.tokens);
  });
});

describe('a text of 1 MiB', () => {
  const long = '\n'.repeat(1 << 20);
  const uses: Readonly<Record<string, (signal: AbortSignal) => Promise<unknown>>> = {
    tokenize: (signal) => model.tokenize(long, { signal }),
    generate: (signal) => model.generate(long, { signal, maxTokens: 1 }).result(),
  };

  test.each(Object.entries(uses))('%s: the event loop turns while it is tokenized', async (_name, use) => {
    const controller = new AbortController();
    setTimeout(() => controller.abort(new Error('gone')));
    await expect(use(controller.signal)).rejects.toThrow('gone');
  });
});

describe('exclusion and independence', () => {
  test('a session runs one generation at a time', async () => {
    using session = model.createSession();
    const first = session.generate(ids(10), { ...greedy, maxTokens: 3 });
    const iterator = first[Symbol.asyncIterator]();
    await iterator.next();
    await expect(session.generate(ids(10)).result()).rejects.toThrow(/no generation in progress/);
    await iterator.return?.(undefined);
  });

  test('concurrent sessions do not affect each other', async () => {
    const prompts = [ids(30), ids(45, 11), ids(60, 13)];
    const alone: (readonly number[])[] = [];
    for (const prompt of prompts)
      alone.push((await model.generate(prompt, { ...greedy, maxTokens: 12 }).result()).tokens);
    const together = await Promise.all(
      prompts.map((prompt) => model.generate(prompt, { ...greedy, maxTokens: 12 }).result()),
    );
    expect(together.map(({ tokens }) => tokens)).toEqual(alone);
  });

  test('equal seeds give equal texts', async () => {
    const run = (seed: number) => model.generate('the', { maxTokens: 20, seed, ignoreEos: true }).result();
    expect((await run(4)).tokens).toEqual((await run(4)).tokens);
    expect((await run(4)).tokens).not.toEqual((await run(5)).tokens);
  });
});

test('disposed models and sessions reject every call', async () => {
  const short = await loadModel(path);
  const session = short.createSession();
  const other = short.createSession();
  session.dispose();
  expect(() => session.reset()).toThrow(ReleasedError);
  await short.dispose();
  await short.dispose();
  await expect(other.generate('x').result()).rejects.toThrow(ReleasedError);
  await expect(short.logprobs([1])).rejects.toThrow(ReleasedError);
  expect(() => short.createSession()).toThrow(ReleasedError);
});
