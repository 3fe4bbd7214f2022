/** Attention policies over tiers, and pages that are restored to the pool. */
import { createWasmBackend } from '@winnow/backend-wasm';
import { memorySink, memorySource } from '@winnow/bytes';
import { memoryPageFile, PageError, type PageFile } from '@winnow/kv-cache';
import { createReferenceBackend, type Backend } from '@winnow/ops';
import { ArgumentError, CapacityError, IoError, type DType } from '@winnow/tensor';
import { sampled, testCoverage } from '@winnow/test-utils';
import { describe, expect, test } from 'vitest';
import { loadModel, type ColdFiles, type EngineEvent, type LoadOptions, type Model } from '../../src/index.js';
import { tinyLlama } from '../support/tiny-llama.js';

const greedy = { temperature: 0, ignoreEos: true } as const;
const ids = (length: number, step = 7): number[] => Array.from({ length }, (_, index) => (index * step + 3) % 60);

const backends: Readonly<Record<string, () => Backend | Promise<Backend>>> = {
  reference: () => createReferenceBackend(),
  wasm: () => createWasmBackend({ numThreads: 1, maxMemoryBytes: 2 ** 27 }),
};

/** A backend without host-visible memory: the engine has to use `read` and `write`. */
async function opaque(): Promise<Backend> {
  const backend = await backends['wasm']!();
  return { ...backend, view: () => undefined };
}

interface Loaded {
  readonly model: Model;
  readonly events: EngineEvent[];
  close(): Promise<void>;
}

async function load(backend: Backend, options: LoadOptions): Promise<Loaded> {
  const events: EngineEvent[] = [];
  const onEvent = (event: EngineEvent): void => void events.push(event);
  const model = await loadModel(await tinyLlama(), {
    context: 1024,
    maxSessions: 1,
    batchSize: 32,
    ...options,
    onEvent,
    backend,
  });
  return {
    model,
    events,
    async close() {
      await model.dispose();
      await backend.dispose();
    },
  };
}

const bytesPer: Readonly<Record<string, number>> = { f32: 4, f16: 2, q8_0: 34 / 32, q4_0: 18 / 32 };
/** Bytes of a block of the tiny model: 2 layers, 2 KV heads of 32, 64 slots, positions, and key boxes of `numPages` pages. */
const blockBytes = (dtype = 'f32', numPages = 0): number =>
  64 * (2 * 2 * 2 * 32 * bytesPer[dtype]! + 4) + numPages * 2 * 2 * (2 * 32 + 2) * 4;

/** A file in memory; `onRead` is called with the bytes of each read. */
function watchedFile(name: string, onRead: (target: Uint8Array) => void): PageFile {
  const file = memoryPageFile({ name });
  return {
    name: file.name,
    get sizeBytes() {
      return file.sizeBytes;
    },
    async read(byteOffset, target) {
      await file.read(byteOffset, target);
      onRead(target);
    },
    write: (byteOffset, bytes) => file.write(byteOffset, bytes),
    sync: () => file.sync(),
    close: () => file.close(),
  };
}

/** Files in memory that count the reads of pages. */
function countedFiles(): ColdFiles & { numReads: number; onRead: () => void } {
  const files = {
    numReads: 0,
    onRead: (): void => undefined,
    create: async (name: string): Promise<PageFile> =>
      watchedFile(name, ({ byteLength }) => {
        if (byteLength < 1000) return; // a header
        files.numReads++;
        files.onRead();
      }),
  };
  return files;
}

function expectClose(found: readonly Float32Array[], expected: readonly Float32Array[]): void {
  for (const [row, values] of found.entries()) {
    let worst = 0;
    for (let i = 0; i < values.length; i++) worst = Math.max(worst, Math.abs(values[i]! - expected[row]![i]!));
    expect(worst).toBeLessThan(1e-4);
  }
}

/** Log-probabilities token by token are slow: `npm test` checks them for the policy with a dense layer. */
const withLogprobs = 'decode=page-topk:budget=2;dense-first=1';

/** For the engine the reference is like WebAssembly: both have host-visible memory. */
/** The pool has 384 slots: some pages of each prompt are outside. */
const [numPrompt, numAnswer] = testCoverage === 'full' ? [500, 40] : [430, 12];

const pageBackends = testCoverage === 'full' ? ['reference', 'wasm', 'opaque'] : ['wasm', 'opaque'];

describe.each(pageBackends)('page-topk on %s', (name) => {
  const create = (): Backend | Promise<Backend> => (name === 'opaque' ? opaque() : backends[name]!());
  const cases: readonly [attention: string, dtype: DType, pages: number][] = [
    ['decode=page-topk:budget=2,window=20', 'f32', 1],
    ['decode=page-topk:budget=7,page=16,window=10,sinks=20', 'f16', 4],
    ['decode=page-topk:budget=3,page=32', 'q8_0', 2],
    ['decode=page-topk:budget=0,sinks=0,window=1', 'q4_0', 1],
    ['decode=page-topk:budget=all', 'f32', 1],
    ['decode=page-topk:budget=2;dense-first=1', 'f32', 1],
  ];
  test.each(name === 'wasm' ? cases : sampled(cases, 6, 1))(
    '%s, %s: the same pages, logits and tokens as without tiers',
    async (attention, dtype, numPages) => {
      const tokens = ids(numPrompt);
      const positions = [300, 380, numPrompt - 1];
      const whole = await load(await create(), { attention, kvCache: { dtype, prefixSharing: false } });
      const run = async ({ model }: Loaded): Promise<{ logprobs: Float32Array[]; tokens: readonly number[] }> => {
        using session = model.createSession();
        const result = await session.generate(tokens, { ...greedy, maxTokens: numAnswer }).result();
        session.dispose();
        const hasLogprobs = testCoverage === 'full' ? name === 'wasm' : attention === withLogprobs;
        const logprobs = hasLogprobs ? await model.logprobs(tokens, { positions, phase: 'decode' }) : [];
        return { logprobs, tokens: result.tokens };
      };
      const expected = await run(whole);
      await whole.close();
      const files = countedFiles();
      const kv = { budget: 6 * blockBytes(dtype, numPages) + 100, offload: { folder: files } };
      const tiered = await load(await create(), {
        attention,
        kvCache: { dtype, ...kv, prefixSharing: false },
      });
      const found = await run(tiered);
      expect(found.tokens).toEqual(expected.tokens);
      expectClose(found.logprobs, expected.logprobs);
      expect(tiered.model.metrics().cache.numBlocks).toBe(6);
      expect(tiered.model.metrics().tiers?.numChosenPages).toBeGreaterThan(0);
      expect(tiered.model.metrics().tiers).toMatchObject({
        ...{ numStoredTokens: 0, residentBytes: 0, coldBytes: 0 },
        ...{ numWarmPages: 0, numColdPages: 0 },
      });
      await tiered.close();
    },
  );
});

describe.each(sampled(['wasm', 'reference'], 2))('page-topk on %s', (name) => {
  test('a smaller error bound reads more pages and is closer to dense', async () => {
    const tokens = ids(400);
    const positions = [390, 399];
    const whole = await load(await backends[name]!(), {});
    const expected = await whole.model.logprobs(tokens, { positions });
    await whole.close();
    const kv = { budget: 6 * blockBytes('f32', 32) + 100, offload: { memory: 2 ** 22 } };
    const epsilons = testCoverage === 'full' ? [0.05, 0.4, 0.8] : [0.05, 0.8];
    const runs: { error: number; numPages: number }[] = [];
    for (const epsilon of epsilons) {
      const attention = `decode=page-topk:epsilon=${epsilon},page=2,window=16`;
      const tiered = await load(await backends[name]!(), { attention, kvCache: kv });
      const found = await tiered.model.logprobs(tokens, { positions, phase: 'decode' });
      let error = 0;
      for (const [row, values] of found.entries()) {
        for (let i = 0; i < values.length; i++) error += (values[i]! - expected[row]![i]!) ** 2;
      }
      runs.push({ error, numPages: tiered.model.metrics().tiers!.numChosenPages });
      await tiered.close();
    }
    for (const [index, { error, numPages }] of runs.slice(1).entries()) {
      expect(error).toBeGreaterThan(runs[index]!.error);
      expect(numPages).toBeLessThan(runs[index]!.numPages);
    }
  });
});

describe('page-topk', () => {
  test('only selected pages are read from files', async () => {
    const files = countedFiles();
    const attention = 'decode=page-topk:budget=2,window=64';
    const kvCache = { budget: 6 * blockBytes('f32', 1) + 100, offload: { folder: files }, prefixSharing: false };
    const { model, close } = await load(await backends['wasm']!(), { attention, kvCache });
    using session = model.createSession();
    await session.generate(ids(900), { ...greedy, maxTokens: 1 }).result();
    const numStored = model.metrics().tiers!.numStoredTokens / 64;
    expect(numStored).toBeGreaterThanOrEqual(9);
    const before = files.numReads;
    const { bytesRead } = model.metrics().tiers!;
    await session.resume({ maxTokens: 11 }).result();
    // 11 tokens, 2 layers, keys and values, 2 pages of each of 2 heads
    const maxReads = 11 * 2 * 2 * 2 * 2;
    expect(files.numReads - before).toBeLessThanOrEqual(maxReads);
    expect(files.numReads - before).toBeGreaterThan(0);
    expect(model.metrics().tiers!.bytesRead - bytesRead).toBe((files.numReads - before) * 64 * 2 * 32 * 4);
    expect(model.metrics().tiers!.residentBytes).toBe(numStored * 2 * 2 * (2 * 32 + 2) * 4);
    await close();
  });

  test('a damaged selected page ends the generation with an error that names its positions', async () => {
    const attention = 'decode=page-topk:budget=3';
    const file = { flip: false };
    const files: ColdFiles = {
      create: async (name) =>
        watchedFile(name, (target) => {
          if (file.flip && target.byteLength > 1000) target[17]! ^= 1;
        }),
    };
    const kvCache = { budget: 6 * blockBytes('f32', 1) + 100, offload: { folder: files }, prefixSharing: false };
    const { model, close } = await load(await backends['wasm']!(), { attention, kvCache });
    using session = model.createSession();
    const { tokens } = await session.generate(ids(700), { ...greedy, maxTokens: 20 }).result();
    session.truncate(700);
    file.flip = true;
    const error = await session
      .generate([...ids(700), tokens[0]!], { ...greedy, maxTokens: 20 })
      .result()
      .catch((e: unknown) => e);
    expect(PageError.isInstance(error)).toBe(true);
    expect((error as PageError).positions.length % 64).toBe(0);
    file.flip = false;
    const again = await session.generate([...ids(700), tokens[0]!], { ...greedy, maxTokens: 19 }).result();
    expect(again.tokens).toEqual(tokens.slice(1));
    await close();
  });
});

const numShared = testCoverage === 'full' ? 60 : 24;

describe('page-topk with pages outside the pool', () => {
  test('concurrent sessions, some within the pool; saved and restored', async () => {
    const attention = 'decode=page-topk:budget=2,page=16;dense-last=1';
    const prompts = [ids(400), [...ids(300), 5, 6, 7], ids(350, 11), ids(40, 13)];
    const options = { attention, maxSessions: 5 };
    const whole = await load(await backends['wasm']!(), { ...options, kvCache: { capacity: 4096 } });
    const generate = ({ model }: Loaded): Promise<(readonly number[])[]> =>
      Promise.all(
        prompts.map(
          async (prompt) => (await model.generate(prompt, { ...greedy, maxTokens: numShared }).result()).tokens,
        ),
      );
    const expected = await generate(whole);
    const kv = { budget: 18 * blockBytes('f32', 4), offload: { memory: 2 ** 16, folder: countedFiles() } };
    const tiered = await load(await backends['wasm']!(), { ...options, kvCache: kv });
    expect(await generate(tiered)).toEqual(expected);
    expect(tiered.model.metrics().steps.numSharedSteps).toBeGreaterThan(0);
    const alone = (await whole.model.generate(ids(400), { ...greedy, maxTokens: numShared }).result()).tokens;
    for (const [from, to] of [
      [tiered, whole],
      [whole, tiered],
      [tiered, tiered],
    ] as const) {
      using session = from.model.createSession();
      await session.generate(ids(400), { ...greedy, maxTokens: numShared / 2 }).result();
      const sink = memorySink();
      await session.save(sink);
      using restored = await to.model.restoreSession(memorySource(sink.toBytes()));
      expect((await restored.resume({ maxTokens: numShared / 2 }).result()).tokens).toEqual(alone.slice(numShared / 2));
    }
    await whole.close();
    await tiered.close();
  });
});

describe.each(sampled(['wasm', 'reference'], 2))('streaming on %s', (name) => {
  const attention = 'streaming:window=100,sinks=4';

  test('nothing outside the pool is read, even after a truncation restores pages', async () => {
    const options = { attention, batchSize: 32, kvCache: { prefixSharing: false } };
    const whole = await load(await backends[name]!(), options);
    const run = async ({ model }: Loaded): Promise<(readonly number[])[]> => {
      using session = model.createSession();
      const { tokens } = await session.generate(ids(700), { ...greedy, maxTokens: 30 }).result();
      session.truncate(300);
      const again = await session
        .generate([...ids(300), 9, 8, 7], { ...greedy, maxTokens: testCoverage === 'full' ? 200 : 70 })
        .result();
      return [tokens, again.tokens];
    };
    const expected = await run(whole);
    await whole.close();
    const files = countedFiles();
    const kv = { budget: 10 * blockBytes() + 100, offload: { folder: files } };
    const tiered = await load(await backends[name]!(), { ...options, kvCache: { ...kv, prefixSharing: false } });
    using session = tiered.model.createSession();
    await session.generate(ids(700), { ...greedy, maxTokens: 30 }).result();
    expect(tiered.model.metrics().tiers!.numDemotedTokens).toBeGreaterThan(0);
    expect(files.numReads).toBe(0);
    session.dispose();
    expect(await run(tiered)).toEqual(expected);
    expect(files.numReads).toBeGreaterThan(0);
    expect(tiered.model.metrics().tiers!.numPromotedTokens).toBeGreaterThanOrEqual(2 * 64);
    await tiered.close();
  });
});

const wideKv = { budget: 24 * blockBytes(), offload: { memory: 2 ** 22 } };

describe('the pool', () => {
  test('restores pages once others are freed; steps then attend only to the pool', async () => {
    const { model, events, close } = await load(await backends['wasm']!(), {
      maxSessions: 3,
      kvCache: { prefixSharing: false, ...wideKv },
    });
    using session = model.createSession();
    const others = [11, 13].map((step) => ({ other: model.createSession(), prompt: ids(600, step) }));
    await session.generate(ids(900), { ...greedy, maxTokens: 1 }).result();
    for (const { other, prompt } of others) await other.generate(prompt, { ...greedy, maxTokens: 1 }).result();
    const before = model.metrics().tiers!;
    expect(before.numStoredTokens).toBeGreaterThan(0);
    // stored pages have bytes, in whichever tier
    expect(before.numWarmPages + before.numColdPages).toBeGreaterThan(0);
    expect([before.numWarmPages > 0, before.numColdPages > 0]).toEqual([before.warmBytes > 0, before.coldBytes > 0]);
    for (const { other } of others) other.dispose();
    const { tokens } = await session.resume({ maxTokens: 20 }).result();
    const after = model.metrics().tiers!;
    expect(after.numPromotedTokens).toBeGreaterThan(0);
    expect(after).toMatchObject({ numStoredTokens: 0, warmBytes: 0 });
    const { numChunks } = after;
    const rest = await session.resume({ maxTokens: 20 }).result();
    expect(model.metrics().tiers!.numChunks).toBe(numChunks);
    const promoted = events.filter((event) => event.kind === 'promoted');
    expect(promoted.reduce((sum, { numTokens }) => sum + numTokens, 0)).toBe(after.numPromotedTokens);
    await close();
    const whole = await load(await backends['wasm']!(), {});
    const all = (await whole.model.generate(ids(900), { ...greedy, maxTokens: 41 }).result()).tokens;
    expect([...tokens, ...rest.tokens]).toEqual(all.slice(1));
    await whole.close();
  });

  test('does not move pages back and forth while a session grows', async () => {
    const { model, close } = await load(await backends['wasm']!(), { context: 2048, kvCache: wideKv });
    using session = model.createSession();
    await session.generate(ids(1800), { ...greedy, maxTokens: testCoverage === 'full' ? 200 : 70 }).result();
    expect(model.metrics().tiers!.numPromotedTokens).toBe(0);
    await close();
  });
});

test('a page that cannot be read stays in its tier', async () => {
  const files = countedFiles();
  const { model, close } = await load(await backends['wasm']!(), {
    maxSessions: 2,
    kvCache: { prefixSharing: false, budget: 24 * blockBytes(), offload: { folder: files } },
  });
  using session = model.createSession();
  const other = model.createSession();
  await session.generate(ids(900), { ...greedy, maxTokens: 1 }).result();
  await other.generate(ids(800, 11), { ...greedy, maxTokens: 1 }).result();
  const { numStoredTokens } = model.metrics().tiers!;
  expect(numStoredTokens).toBeGreaterThan(0);
  other.dispose();
  const stored = model.metrics().tiers!.numStoredTokens;
  files.onRead = () => {
    throw new IoError({ source: 'kv', message: 'EIO: i/o error' });
  };
  const error = await session
    .resume({ maxTokens: 3 })
    .result()
    .catch((e: unknown) => e);
  expect(PageError.isInstance(error)).toBe(true);
  expect(model.metrics().tiers!.numStoredTokens).toBe(stored);
  files.onRead = () => undefined;
  expect((await session.resume({ maxTokens: 3 }).result()).tokens).toHaveLength(3);
  await close();
});

describe('errors', () => {
  test.each([
    'sparq',
    'prefill=subquadratic',
    'prefill=h2o;decode=page-topk',
    'oracle-topk',
    'decode=streaming',
    'decode=subquadratic',
    'decode=verified-topk',
    'prefill=streaming:delta=64',
  ])('%s', async (attention) => {
    const backend = createReferenceBackend();
    const kv = { budget: 8 * blockBytes('f32', 1), offload: { memory: 2 ** 20 } };
    const spec = attention === 'sparq' ? 'decode=sparq' : attention;
    const error = await load(backend, { attention: spec, kvCache: kv }).catch((e: unknown) => e);
    expect(ArgumentError.isInstance(error)).toBe(true);
    expect((error as Error).message).toContain('page-topk for generated tokens');
  });

  test('a pool smaller than the positions that streaming reads', async () => {
    const kv = { budget: 8 * blockBytes(), offload: { memory: 2 ** 20 } };
    const loading = load(createReferenceBackend(), { attention: 'streaming:window=600', kvCache: kv });
    await expect(loading).rejects.toThrow(CapacityError);
    await expect(loading).rejects.toThrow('a smaller window');
  });
});
