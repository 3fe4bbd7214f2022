/** Loading, sharing, unloading and failing, with models that are only names. */
import { ArgumentError, CapacityError, FormatError } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import type { AvailableModel, ModelCatalog, ModelEvent, PreparedModel } from '../../catalog.js';
import type { GenerativeModel } from '../../options.js';
import { Slots } from '../slots.js';
import { ModelPool, type PoolOptions } from './model-pool.js';

const never = new AbortController().signal;

interface FakeModel {
  readonly id: string;
  readonly memoryBytes: number;
  /** What the next load waits for. */
  gate?: Promise<void>;
  /** Errors of the next loads. */
  failures?: unknown[];
  unloadAfterMs?: number;
}

class FakeCatalog implements ModelCatalog {
  readonly models: FakeModel[];
  /** Ids in the order of loads, `-id` for unloads. */
  readonly calls: string[] = [];
  /** Bytes of the loaded models, and the most there ever were. */
  bytes = 0;
  maxBytes = 0;

  constructor(...models: FakeModel[]) {
    this.models = models;
  }

  async list(): Promise<AvailableModel[]> {
    return this.models.map((model) => this.#available(model));
  }

  async find(name: string): Promise<AvailableModel | undefined> {
    const model = this.models.find(({ id }) => id === name);
    return model && this.#available(model);
  }

  #available(model: FakeModel): AvailableModel {
    const { id, memoryBytes, unloadAfterMs } = model;
    return {
      id,
      ...(unloadAfterMs === undefined ? {} : { unloadAfterMs }),
      prepare: async (): Promise<PreparedModel> => ({
        memoryBytes,
        load: async ({ signal }) => {
          this.calls.push(id);
          await model.gate;
          const [failure] = model.failures?.splice(0, 1) ?? [];
          if (failure !== undefined) throw failure;
          signal.throwIfAborted();
          this.bytes += memoryBytes;
          this.maxBytes = Math.max(this.maxBytes, this.bytes);
          const dispose = async (): Promise<void> => {
            this.calls.push(`-${id}`);
            this.bytes -= memoryBytes;
          };
          const loaded = { [Symbol.asyncDispose]: dispose } as unknown as GenerativeModel & AsyncDisposable;
          return { kind: 'generative', model: loaded };
        },
      }),
    };
  }
}

function poolOf(catalog: ModelCatalog, options: Partial<PoolOptions> = {}): { pool: ModelPool; events: ModelEvent[] } {
  const events: ModelEvent[] = [];
  const limits = { numSlots: 2, maxQueued: 10, queueTimeoutMs: 60_000, now: () => 0 };
  const pool = new ModelPool({
    ...{ catalog, memoryBytes: 100, maxLoaded: Infinity, unloadAfterMs: Infinity, waitMs: 60_000, now: () => 0 },
    createSlots: (numSlots, onRelease) => new Slots({ ...limits, numSlots, onRelease }),
    onEvent: (event) => events.push(event),
    reportError: () => {},
    ...options,
  });
  return { pool, events };
}

/** A pool with one model, a request whose load waits until `open` is called, and the client of the request. */
async function poolThatLoads(): Promise<
  ReturnType<typeof poolOf> & {
    readonly catalog: FakeCatalog;
    readonly first: Promise<unknown>;
    readonly leaving: AbortController;
    readonly open: () => void;
  }
> {
  const { promise: gate, resolve: open } = Promise.withResolvers<void>();
  const catalog = new FakeCatalog({ id: 'a', memoryBytes: 60, gate });
  const { pool, events } = poolOf(catalog);
  const leaving = new AbortController();
  const first = pool.acquire('generative', 'a', leaving.signal);
  await settled();
  return { pool, events, catalog, first, leaving, open };
}

/** Lets everything happen that waits for nothing but promises. */
const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

async function use(pool: ModelPool, name: string): Promise<void> {
  (await pool.acquire('generative', name, never)).release();
}

describe('loading', () => {
  test('requests for one model share one load, which outlives those that leave', async () => {
    const { pool, events, catalog, first, leaving, open } = await poolThatLoads();
    const others = [1, 2].map(() => pool.acquire('generative', 'a', never));
    await settled();
    expect((await pool.list()).map(({ state }) => state)).toEqual(['loading']);
    leaving.abort(new Error('left'));
    await expect(first).rejects.toThrow('left');
    open();
    const [one, two] = await Promise.all(others);
    expect(one?.entry).toBe(two?.entry);
    expect(catalog.calls).toEqual(['a']);
    expect(events.map(({ event }) => event)).toEqual(['loading', 'loaded']);
  });

  test('a load that nobody waits for is canceled, and the next request loads anew', async () => {
    const { pool, events, catalog, first, leaving, open } = await poolThatLoads();
    leaving.abort(new Error('left'));
    await expect(first).rejects.toThrow('left');
    const second = pool.acquire('generative', 'a', never);
    await settled();
    expect(catalog.calls).toEqual(['a']); // never two loads of one model at once
    open();
    await second;
    expect(catalog.calls).toEqual(['a', 'a']);
    expect(events.map(({ event }) => event)).toEqual(['loading', 'canceled', 'loading', 'loaded']);
    expect(pool.usedBytes).toBe(60);
  });
});

describe('errors', () => {
  test('everyone who waits gets the error of a failed load, and the next attempt is free', async () => {
    const failures = [new FormatError({ source: '/secret/a.gguf', field: 'magic', message: 'broken' })];
    const catalog = new FakeCatalog({ id: 'a', memoryBytes: 60, failures });
    const { pool, events } = poolOf(catalog);
    const failed = await Promise.allSettled([1, 2].map(() => pool.acquire('generative', 'a', never)));
    for (const outcome of failed) {
      expect(outcome).toMatchObject({ status: 'rejected', reason: { status: 500, code: 'model_load_failed' } });
      expect(String((outcome as PromiseRejectedResult).reason)).not.toContain('secret');
    }
    expect(events.at(-1)).toMatchObject({ event: 'failed', error: { source: '/secret/a.gguf' } });
    expect(pool.usedBytes).toBe(0);
    await use(pool, 'a');
    expect(events.map(({ event }) => event)).toEqual(['loading', 'failed', 'loading', 'loaded']);
  });

  test.each([
    [new ArgumentError({ argument: 'model', expected: 'a decoder', actual: 'an encoder' }), 400, 'unsupported_model'],
    [
      new CapacityError({ resource: 'memory plan', needed: 9, available: 5, unit: 'bytes' }),
      503,
      'insufficient_memory',
    ],
    [new CapacityError({ resource: 'disk of /x', needed: 9, available: 5, unit: 'bytes' }), 500, 'model_load_failed'],
  ])('the error %s becomes %d %s', async (failure, status, code) => {
    const { pool } = poolOf(new FakeCatalog({ id: 'a', memoryBytes: 1, failures: [failure] }));
    await expect(pool.acquire('generative', 'a', never)).rejects.toMatchObject({ status, code });
  });

  test('unknown names and models beyond the memory are rejected', async () => {
    const { pool } = poolOf(new FakeCatalog({ id: 'big', memoryBytes: 101 }));
    await expect(pool.acquire('generative', 'b', never)).rejects.toMatchObject({ status: 404 });
    await expect(pool.acquire('generative', 'big', never)).rejects.toMatchObject({
      ...{ status: 503, code: 'insufficient_memory', message: expect.stringContaining('101') as string },
    });
  });
});

describe('unloading', () => {
  test('the least recently used model makes room', async () => {
    const models = ['a', 'b', 'c'].map((id) => ({ id, memoryBytes: 45 }));
    const catalog = new FakeCatalog(...models);
    const { pool, events } = poolOf(catalog);
    for (const name of ['a', 'b', 'a', 'c']) await use(pool, name);
    expect(catalog.calls).toEqual(['a', 'b', '-b', 'c']);
    expect(catalog.maxBytes).toBe(90);
    expect(events.find(({ event }) => event === 'unloaded')).toMatchObject({ model: 'b', reason: 'memory' });
  });

  test('no more models than allowed are loaded', async () => {
    const catalog = new FakeCatalog({ id: 'a', memoryBytes: 1 }, { id: 'b', memoryBytes: 1 });
    const { pool } = poolOf(catalog, { maxLoaded: 1 });
    await use(pool, 'a');
    await use(pool, 'b');
    expect(catalog.calls).toEqual(['a', '-a', 'b']);
  });

  test('a model with a request stays; later requests for it wait behind the model that needs its memory', async () => {
    const catalog = new FakeCatalog({ id: 'a', memoryBytes: 60 }, { id: 'b', memoryBytes: 60 });
    const { pool } = poolOf(catalog);
    const running = await pool.acquire('generative', 'a', never);
    const b = pool.acquire('generative', 'b', never);
    await settled();
    const again = pool.acquire('generative', 'a', never);
    await settled();
    expect(catalog.calls).toEqual(['a']);
    running.release();
    (await b).release();
    await again;
    expect(catalog.calls).toEqual(['a', '-a', 'b', '-b', 'a']);
    expect(catalog.maxBytes).toBe(60);
  });

  test('a model whose generation outlives its request stays until it ends', async () => {
    const catalog = new FakeCatalog({ id: 'a', memoryBytes: 60 }, { id: 'b', memoryBytes: 60 });
    const { pool } = poolOf(catalog);
    const { entry, release } = await pool.acquire('generative', 'a', never);
    const slot = await entry.slots.acquire('1', never);
    release();
    const b = pool.acquire('generative', 'b', never);
    await settled();
    expect(catalog.calls).toEqual(['a']);
    slot.release();
    await b;
    expect(catalog.calls).toEqual(['a', '-a', 'b']);
  });
});

describe('waiting for memory', () => {
  test('a model that finds no memory in time gets 503, and the one in its way is used again', async () => {
    const catalog = new FakeCatalog({ id: 'a', memoryBytes: 60 }, { id: 'b', memoryBytes: 60 });
    const { pool } = poolOf(catalog, { waitMs: 5 });
    await pool.acquire('generative', 'a', never);
    await expect(pool.acquire('generative', 'b', never)).rejects.toMatchObject({ status: 503, code: 'queue_timeout' });
    await use(pool, 'a');
    expect(catalog.calls).toEqual(['a']);
  });

  test('models that wait for memory get it in order', async () => {
    const models = ['a', 'b', 'c', 'd'].map((id) => ({ id, memoryBytes: 60 }));
    const catalog = new FakeCatalog(...models);
    const { pool } = poolOf(catalog);
    const running = await pool.acquire('generative', 'a', never);
    const leaving = new AbortController();
    const waiting = [
      use(pool, 'b'),
      expect(pool.acquire('generative', 'd', leaving.signal)).rejects.toThrow('left'),
      use(pool, 'c'),
    ];
    await settled();
    leaving.abort(new Error('left'));
    running.release();
    await Promise.all(waiting);
    expect(catalog.calls).toEqual(['a', '-a', 'b', '-b', 'c']);
  });
});

describe('idle models', () => {
  test('are unloaded after their time, or at once', async () => {
    const catalog = new FakeCatalog({ id: 'a', memoryBytes: 10, unloadAfterMs: 1 }, { id: 'b', memoryBytes: 10 });
    const { pool, events } = poolOf(catalog);
    await use(pool, 'a');
    expect(pool.loaded()[0]?.expiresMs).toBeGreaterThan(0);
    while (pool.entries().length > 0) await new Promise((resolve) => setTimeout(resolve, 1));
    await use(pool, 'b');
    expect(pool.loaded()[0]?.expiresMs).toBeUndefined();
    const lease = await pool.acquire('generative', 'b', never);
    lease.keepFor(0);
    expect(catalog.calls).toEqual(['a', '-a', 'b']);
    lease.release();
    await settled();
    expect(catalog.calls.at(-1)).toBe('-b');
    expect(events.filter(({ event }) => event === 'unloaded')).toMatchObject([{ reason: 'idle' }, { reason: 'idle' }]);
    await use(pool, 'b');
    expect([await pool.expire('b'), await pool.expire('none')]).toEqual([true, false]);
    await settled();
    expect(pool.entries()).toEqual([]);
  });
});

test('closing rejects those who wait, and unloads the rest after their requests', async () => {
  const { promise: gate, resolve: open } = Promise.withResolvers<void>();
  const catalog = new FakeCatalog({ id: 'a', memoryBytes: 10 }, { id: 'b', memoryBytes: 10, gate });
  const { pool } = poolOf(catalog);
  const running = await pool.acquire('generative', 'a', never);
  const waiting = pool.acquire('generative', 'b', never);
  const refused = expect(waiting).rejects.toMatchObject({ status: 503, code: 'shutting_down' });
  await settled();
  pool.close();
  await expect(pool.acquire('generative', 'a', never)).rejects.toMatchObject({ code: 'shutting_down' });
  running.release();
  open();
  await Promise.all([refused, pool.dispose()]);
  expect(catalog.bytes).toBe(0);
  expect(pool.entries()).toEqual([]);
});
