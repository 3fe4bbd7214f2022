/** Faults of the cold tier, and invalid options. */
import { createWasmBackend } from '@winnow/backend-wasm';
import { memoryPageFile, PageError, type PageFile } from '@winnow/kv-cache';
import type { Backend } from '@winnow/ops';
import { ArgumentError, CapacityError, IoError } from '@winnow/tensor';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  loadModel,
  type ColdFiles,
  type KvCacheOptions,
  type KvOffloadOptions,
  type LoadOptions,
  type Model,
} from '../../src/index.js';
import { tinyLlama } from '../support/tiny-llama.js';

const greedy = { temperature: 0, ignoreEos: true } as const;
const tenTokens = { ...greedy, maxTokens: 10 };
const ids = (length: number, step = 7): number[] => Array.from({ length }, (_, index) => (index * step + 3) % 60);
const prompt = ids(600);
/** Bytes of a block of the tiny model in f32: 2 layers, 2 heads of 32, 64 slots, and their positions. */
const blockBytes = 64 * (2 * 2 * 2 * 32 * 4 + 4);

let sharedBackend: Backend;
let expected: readonly number[];
beforeAll(async () => {
  sharedBackend = await createWasmBackend({ numThreads: 1, maxMemoryBytes: 2 ** 27 });
  await using model = await loadModel(await tinyLlama(), { context: 1024, backend: sharedBackend });
  expected = (await model.generate(prompt, tenTokens).result()).tokens;
});
afterAll(() => sharedBackend.dispose());

/** A model whose cold tier is `cold`. */
async function loadOver(cold: ColdFiles, offload: KvOffloadOptions = {}, options: LoadOptions = {}): Promise<Model> {
  const common = { context: 1024, maxSessions: 2, backend: sharedBackend };
  return loadModel(await tinyLlama(), {
    ...common,
    ...options,
    kvCache: { prefixSharing: false, budget: 7 * blockBytes, offload: { folder: cold, ...offload } },
  });
}

/** Page files in memory whose reads and writes can be intercepted. */
function hookedFiles(hooks: {
  read?: (byteOffset: number, target: Uint8Array) => void;
  write?: (byteOffset: number) => void;
}): ColdFiles & { numOpen: number } {
  const files = {
    numOpen: 0,
    async create(name: string): Promise<PageFile> {
      const file = memoryPageFile({ name });
      files.numOpen++;
      return {
        name,
        get sizeBytes() {
          return file.sizeBytes;
        },
        async read(byteOffset, target) {
          await file.read(byteOffset, target);
          hooks.read?.(byteOffset, target);
        },
        async write(byteOffset, bytes) {
          hooks.write?.(byteOffset);
          await file.write(byteOffset, bytes);
        },
        sync: () => file.sync(),
        async close() {
          files.numOpen--;
          await file.close();
        },
      };
    },
  };
  return files;
}

const readFaults: Readonly<Record<string, (target: Uint8Array) => void>> = {
  'a flipped bit of a page': (target) => void (target[1000]! ^= 4),
  'a flipped bit of a header': (target) => void (target[20]! ^= 4),
  'a page of zeros': (target) => void target.fill(0),
  'an error of the device': () => {
    throw new IoError({ source: 'kv', message: 'EIO: i/o error' });
  },
  'a file that ends early': (target) => {
    throw new IoError({ source: 'kv', message: `unexpected end, expected ${target.length} more bytes` });
  },
};

describe('faults of the cold tier', () => {
  test.each(Object.keys(readFaults))(
    '%s: the error names the positions, and the session remains usable',
    async (name) => {
      let countdown = Infinity;
      const files = hookedFiles({
        read: (_byteOffset, target) => {
          // a record is read in two parts: a short header and the page
          const isHeader = target.length < 1000;
          if (isHeader === name.includes('header') && countdown-- === 0) readFaults[name]!(target);
        },
      });
      await using model = await loadOver(files);
      using session = model.createSession();
      using other = model.createSession();
      await session.generate(prompt, { ...tenTokens, maxTokens: 1 }).result();
      for (const after of [0, 1, 5]) {
        countdown = after;
        const failed = session.generate([...prompt, 1, 2, 3], tenTokens);
        const error = await failed.result().catch((reason: unknown) => reason);
        expect(PageError.isInstance(error)).toBe(true);
        const { positions } = error as PageError;
        expect(positions.length).toBeGreaterThan(0);
        // whole blocks, never the first one
        expect(Math.min(...positions) % 64 === 0 && Math.min(...positions) >= 64).toBe(true);
        expect(session.tokens.slice(0, 600)).toEqual(prompt);
        countdown = Infinity;
        session.truncate(500);
        expect((await session.generate(prompt, tenTokens).result()).tokens).toEqual(expected);
        session.truncate(600);
      }
      expect((await other.generate(prompt, tenTokens).result()).tokens).toEqual(expected);
      await model.dispose();
      expect(files.numOpen).toBe(0);
    },
  );

  test('a full disk: nothing leaves the pool, other sessions continue, and this one does once there is room', async () => {
    let isFull = false;
    const files = hookedFiles({
      write: () => {
        if (isFull) throw new IoError({ source: 'kv', message: 'ENOSPC: no space left on device' });
      },
    });
    await using model = await loadOver(files);
    using session = model.createSession();
    await session.generate(prompt.slice(0, 300), { ...tenTokens, maxTokens: 0 }).result();
    const { numStoredTokens } = model.metrics().tiers!;
    isFull = true;
    for (let attempt = 0; attempt < 2; attempt++) {
      await expect(session.generate(prompt, tenTokens).result()).rejects.toThrow('ENOSPC');
      expect(session.tokens).toEqual(prompt.slice(0, session.tokens.length));
      expect(model.metrics().tiers!.numStoredTokens - numStoredTokens).toBe(0);
    }
    isFull = false;
    expect((await session.generate(prompt, tenTokens).result()).tokens).toEqual(expected);
  });
});

describe('full tiers, and aborts', () => {
  test('full tiers are a capacity error, even while several sessions wait', async () => {
    await using model = await loadOver(hookedFiles({}), { memory: 0 });
    await using small = await loadModel(await tinyLlama(), {
      context: 1024,
      maxSessions: 3,
      kvCache: { prefixSharing: false, budget: 8 * blockBytes, offload: { memory: blockBytes } },
      backend: sharedBackend,
    });
    await expect(small.generate(prompt, tenTokens).result()).rejects.toThrow(CapacityError);
    const outcomes = await Promise.allSettled(
      [1, 2, 3].map((n) => small.generate(ids(600, n), { ...tenTokens, maxTokens: 3 }).result()),
    );
    for (const outcome of outcomes) expect(outcome.status).toBe('rejected');
    expect(small.metrics()).toMatchObject({ cache: { numUsedBlocks: 0 }, tiers: { numStoredTokens: 0, warmBytes: 0 } });
    expect((await small.generate(prompt.slice(0, 200), { ...greedy, maxTokens: 3 }).result()).tokens).toHaveLength(3);
    expect((await model.generate(prompt, tenTokens).result()).tokens).toEqual(expected);
  });

  test('aborted while pages are read: the session remains usable', async () => {
    const controller = { current: new AbortController() };
    let countdown = Infinity;
    const files = hookedFiles({
      read: () => {
        if (countdown-- === 0) controller.current.abort(new Error('enough'));
      },
    });
    await using model = await loadOver(files);
    using session = model.createSession();
    await session.generate(prompt, { ...tenTokens, maxTokens: 1 }).result();
    for (const after of [0, 3, 20]) {
      controller.current = new AbortController();
      countdown = after;
      const { signal } = controller.current;
      await expect(session.generate([...prompt, 1, 2], { ...tenTokens, signal }).result()).rejects.toThrow('enough');
      session.truncate(590);
      expect((await session.generate(prompt, tenTokens).result()).tokens).toEqual(expected);
    }
  });
});

describe('options', () => {
  test('invalid options are rejected, unnecessary ones ignored', async () => {
    const load = async (kvCache: KvCacheOptions, options: LoadOptions = {}): Promise<Model> =>
      loadModel(await tinyLlama(), { context: 1024, maxSessions: 1, backend: sharedBackend, kvCache, ...options });
    await expect(load({ budget: -1 })).rejects.toThrow('kvCache.budget');
    await expect(load({ budget: 8 * blockBytes })).rejects.toThrow('kvCache.offload.memory or kvCache.offload.folder');
    const tight = { budget: 2 * blockBytes, offload: { memory: 2 ** 20 } };
    await expect(load(tight)).rejects.toThrow(/available \d+ bytes$/); // nothing smaller than a batch of one block
    await expect(load(tight, { batchSize: 256 })).rejects.toThrow('a smaller batchSize reduces it');
    await expect(load(tight, { maxSessions: 2 })).rejects.toThrow('a smaller batchSize or maxSessions reduces it');
    await expect(load({ offload: { memory: 2 ** 20 } })).rejects.toThrow('kvCache.budget: expected a size');
    await expect(
      load({ budget: 8 * blockBytes, offload: { memory: 2 ** 20 } }, { trace: { attention: true } }),
    ).rejects.toThrow(ArgumentError);
    await expect(load({ budget: 8 * blockBytes, offload: { folder: '/dev/null/no' } })).rejects.toThrow(IoError);
    await using model = await load({ budget: 2 ** 24, offload: { folder: '/dev/null/no' } });
    expect([model.plan.tiers, model.metrics().tiers]).toEqual([undefined, undefined]);
    await using tiered = await load({ budget: 8 * blockBytes, offload: { memory: 2 ** 16, folder: hookedFiles({}) } });
    const { tiers, totalBytes, weightsBytes, kvBytes, activationBytes } = tiered.plan;
    expect(tiers).toMatchObject({ hotBytes: 8 * blockBytes, warmBytes: 2 ** 16 });
    expect(tiers!.hotBytes + tiers!.warmBytes + tiers!.coldBytes).toBeGreaterThanOrEqual(1024 * 1024);
    expect(kvBytes).toBe(tiers!.hotBytes + tiers!.chunkBytes);
    expect(totalBytes).toBe(weightsBytes + kvBytes + activationBytes + 2 ** 16);
  });
});
