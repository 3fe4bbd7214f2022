/** Generations that do not finish normally: failed steps, disposal, several readers, fairness. */
import { createReferenceBackend } from '@winnow/ops';
import { ArgumentError, BackendError, CapacityError, ReleasedError } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import { loadModel, type GeneratedToken, type Model } from '../../src/index.js';
import { tinyFolder, watchedBackend, type BackendLog } from '../support/tiny-model.js';

const greedy = { temperature: 0, ignoreEos: true } as const;
const ids = (length: number, step = 7): number[] => Array.from({ length }, (_, index) => (index * step) % 20);

/** A model whose steps fail after they ran where `when` returns true. */
async function failingModel(when: (log: BackendLog) => boolean, options: object = {}): Promise<Model> {
  const { backend } = watchedBackend(createReferenceBackend(), (log) => {
    if (when(log)) throw new BackendError({ backend: 'test', message: `step ${log.numRuns} failed` });
  });
  return loadModel(await tinyFolder(), { backend, batchSize: 16, context: 256, maxSessions: 2, ...options });
}

describe('a step that fails after it wrote to the cache', () => {
  // a prompt of 40 tokens takes three steps
  test.each([1, 2, 3, 4, 7])(
    'step %i: the error is reported, and the session continues as if the step had not run',
    async (failing) => {
      await using model = await failingModel(({ numRuns }) => numRuns === failing);
      await using healthy = await failingModel(() => false);
      using session = model.createSession();
      const failed = session.generate(ids(40), { ...greedy, maxTokens: 10 });
      await expect(failed.result()).rejects.toThrow(`step ${failing} failed`);
      await expect(failed.result()).rejects.toThrow(BackendError); // reported again
      expect(session.tokens.length).toBe(failing <= 3 ? 16 * (failing - 1) : 40 + failing - 4);
      const again = await session.generate(ids(40), { ...greedy, maxTokens: 10 }).result();
      expect(again.tokens).toEqual((await healthy.generate(ids(40), { ...greedy, maxTokens: 10 }).result()).tokens);
    },
  );

  test('releases its blocks', async () => {
    // two sessions share five blocks of 64; the failed step had taken three
    await using model = await failingModel(({ numRuns }) => numRuns === 1, { batchSize: 192 });
    using first = model.createSession();
    using second = model.createSession();
    await expect(first.generate(ids(190), greedy).result()).rejects.toThrow('step 1 failed');
    expect((await second.generate(ids(250), { ...greedy, maxTokens: 1 }).result()).tokens).toHaveLength(1);
    await expect(first.generate(ids(100, 3), { ...greedy, maxTokens: 1 }).result()).rejects.toThrow(CapacityError);
  });
});

const expected = async (model: Model): Promise<readonly number[]> =>
  (await model.generate(ids(5), { ...greedy, maxTokens: 12 }).result()).tokens;

describe('several readers of one generation', () => {
  test('the result requested twice, concurrently and later', async () => {
    await using model = await failingModel(() => false);
    const generation = model.generate(ids(5), { ...greedy, maxTokens: 12 });
    const [a, b] = await Promise.all([generation.result(), generation.result()]);
    expect(a).toBe(b);
    expect(await generation.result()).toBe(a);
    expect(a.tokens).toEqual(await expected(model));
  });

  test('the result requested inside a loop, and two loops: each token once', async () => {
    await using model = await failingModel(() => false);
    const generation = model.generate(ids(5), { ...greedy, maxTokens: 12 });
    const seen: number[] = [];
    for await (const { tokenId } of generation) {
      seen.push(tokenId);
      if (seen.length === 3) expect((await generation.result()).tokens).toEqual(await expected(model));
    }
    expect(seen).toEqual((await expected(model)).slice(0, 3));
    const shared = model.generate(ids(5), { ...greedy, maxTokens: 12 });
    const parts: GeneratedToken[] = [];
    const loop = async (): Promise<void> => {
      for await (const part of shared) parts.push(part);
    };
    await Promise.all([loop(), loop()]);
    expect(parts.map(({ tokenId }) => tokenId)).toEqual(await expected(model));
    expect((await shared.result()).tokens).toEqual(await expected(model));
  });

  test('a failure reaches all of them', async () => {
    await using model = await failingModel(({ numRuns }) => numRuns === 3);
    const generation = model.generate(ids(5), greedy);
    const loop = async (): Promise<void> => {
      for await (const _token of generation);
    };
    const outcomes = await Promise.allSettled([loop(), generation.result(), loop()]);
    expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected']);
    for (const outcome of outcomes) expect(outcome).toMatchObject({ reason: { message: 'test: step 3 failed' } });
  });
});

test('return() before, during and after', async () => {
  await using model = await failingModel(() => false);
  using session = model.createSession();
  const early = session.generate(ids(5), { ...greedy, maxTokens: 4 });
  await early[Symbol.asyncIterator]().return?.(undefined); // before it started: nothing is canceled
  expect((await early.result()).tokens).toHaveLength(4);
  const broken = session.generate(ids(5), greedy);
  const iterator = broken[Symbol.asyncIterator]();
  await iterator.next();
  // without awaiting the step in progress
  const pending = iterator.next();
  await Promise.all([pending, iterator.return?.(undefined)]);
  await expect(broken.result()).rejects.toThrow(ArgumentError);
  await expect(broken.result()).rejects.toThrow(/expected a generation whose loop ran to the end/);
  expect((await session.generate(ids(5), { ...greedy, maxTokens: 4 }).result()).tokens).toHaveLength(4);
  await expect(session.generate(ids(5), { signal: AbortSignal.abort(new Error('early')) }).result()).rejects.toThrow(
    'early',
  );
  session.reset();
});

describe('disposal', () => {
  test('of the model while sessions generate: typed errors, and no memory left', async () => {
    let disposal: Promise<void> | undefined;
    const { backend, log } = watchedBackend(createReferenceBackend(), ({ numRuns }) => {
      if (numRuns === 3) disposal = model.dispose();
    });
    const model: Model = await loadModel(await tinyFolder(), { backend, context: 256 });
    const running = [1, 2, 3].map((step) => model.generate(ids(20, step), greedy).result());
    const settled = Promise.allSettled([...running, model.logprobs(ids(200))]);
    for (const outcome of await settled) {
      expect(outcome.status).toBe('rejected');
      if (outcome.status === 'rejected') expect(outcome.reason).toBeInstanceOf(ReleasedError);
    }
    await disposal;
    expect([log.liveBytes, log.programBytes]).toEqual([0, 0]);
    await backend.dispose();
  });

  test('of the backend first: nothing is left to free', async () => {
    const backend = createReferenceBackend();
    const model = await loadModel(await tinyFolder(), { backend });
    await backend.dispose();
    await expect(model.generate(ids(3)).result()).rejects.toThrow(ReleasedError);
    await model.dispose();
  });

  test('of a session is rejected while it generates, and works afterwards', async () => {
    await using model = await failingModel(() => false);
    const session = model.createSession();
    const iterator = session.generate(ids(5), greedy)[Symbol.asyncIterator]();
    await iterator.next();
    expect(() => session.dispose()).toThrow(ArgumentError);
    expect(() => session.reset()).toThrow(ArgumentError);
    await iterator.return?.(undefined);
    session.dispose();
    session.dispose();
    await expect(session.generate(ids(5)).result()).rejects.toThrow(ReleasedError);
  });
});

describe('fairness', () => {
  test('sessions take turns step by step: a short answer does not wait for a long prompt', async () => {
    // steps that take time
    const { backend } = watchedBackend(createReferenceBackend(), () => new Promise((resolve) => setImmediate(resolve)));
    await using model = await loadModel(await tinyFolder(), { backend, batchSize: 16 });
    const order: string[] = [];
    const long = model
      .generate(ids(320), { ...greedy, maxTokens: 1, onPromptProgress: () => order.push('long') })
      .result();
    const short = (async () => {
      for await (const _token of model.generate(ids(3), { ...greedy, maxTokens: 10 })) order.push('short');
    })();
    await Promise.all([long, short]);
    // 20 steps of the long prompt and 10 of the short answer alternate
    const numLongBefore = order.slice(0, order.lastIndexOf('short')).filter((who) => who === 'long').length;
    expect(numLongBefore).toBeLessThanOrEqual(12);
    expect(numLongBefore).toBeGreaterThanOrEqual(8);
  });

  test('a failing session does not stop the others', async () => {
    // a shared step fails, then the first sequence alone
    await using model = await failingModel(({ numRuns }) => numRuns === 6 || numRuns === 7);
    const outcomes = await Promise.allSettled(
      [1, 3].map((step) => model.generate(ids(5, step), { ...greedy, maxTokens: 9 }).result()),
    );
    expect(outcomes.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
  });

  test('timers run during a long prompt', async () => {
    const backend = createReferenceBackend();
    await using model = await loadModel(await tinyFolder({ vocabSize: 64 }), {
      backend,
      context: 2048,
      batchSize: 256,
    });
    let numTicks = 0;
    let isDone = false;
    const tick = (): void => {
      numTicks++;
      if (!isDone) setTimeout(tick, 0);
    };
    setTimeout(tick, 0);
    const before = numTicks;
    await model.generate(ids(2000), { ...greedy, maxTokens: 1 }).result();
    isDone = true;
    expect(numTicks - before).toBeGreaterThan(3); // a blocked event loop would give none
    await backend.dispose();
  });
});

test('leaving loops early repeatedly keeps the session and its cache usable', async () => {
  await using model = await failingModel(() => false);
  using session = model.createSession();
  for (let round = 0; round < 3; round++) {
    for await (const _token of session.generate(ids(9), greedy)) break;
  }
  expect((await session.generate(ids(9), { ...greedy, maxTokens: 2 }).result()).cachedTokens).toBe(8);
});
