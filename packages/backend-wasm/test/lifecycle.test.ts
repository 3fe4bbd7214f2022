/** Workers and memory during the life of a backend. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Worker } from 'node:worker_threads';
import { createScalarBlock, ProgramBuilder, type Backend, type Executable, type Program } from '@winnow/ops';
import { ArgumentError, BackendError, CapacityError, DeviceLostError, ReleasedError } from '@winnow/tensor';
import { testCoverage } from '@winnow/test-utils';
import { expect, test } from 'vitest';
import { createHost } from '../src/host/host.node.js';
import { createWasmBackend, type WasmHost } from '../src/index.js';

const small = { maxMemoryBytes: 2 ** 22 };

/** `numLayers` matmuls with a square matrix of `size`, for up to 64 tokens. */
function products(size: number, numLayers: number): Program {
  const b = new ProgramBuilder({ T: 64 });
  const weight = b.external('weight', 'weights', 'f32', [size, size]);
  let x = b.activation('embedding-lookup', { table: weight, tokens: b.scalar('tokens', ['T']) });
  for (let layer = 0; layer < numLayers; layer++) x = b.activation('matmul', { x, weight });
  b.output('y', x);
  return b.build();
}

async function prepare(backend: Backend, program: Program, size: number): Promise<Executable> {
  const weight = backend.allocate({ sizeBytes: size * size * 4, usage: 'weights', label: 'weight' });
  return backend.prepare(program, { buffers: new Map([['weight', weight]]) });
}

function scalarsOf(program: Program, numTokens: number, token = 0): Int32Array {
  const block = createScalarBlock(program.scalars, program.symbols);
  block.bind('T', numTokens);
  block.slot('tokens').fill(token, 0, numTokens);
  return block.words;
}

/** Counts the live workers of a host. */
function countingHost(): { host: WasmHost; count: () => number } {
  const host = createHost();
  let numAlive = 0;
  return {
    host: {
      ...host,
      startWorker(start, events) {
        const handle = host.startWorker(start, events);
        numAlive++;
        return {
          setBusy: (isBusy) => handle.setBusy(isBusy),
          async terminate() {
            await handle.terminate();
            numAlive--;
          },
        };
      },
    },
    count: () => numAlive,
  };
}

/** Collects garbage, so that remaining objects are referenced; a turn of the event loop ends terminated workers. */
async function collectGarbage(): Promise<void> {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  collect();
  await new Promise((resolve) => setTimeout(resolve, 20));
  collect();
}

const numCreations = testCoverage === 'full' ? 1000 : 25;

// a thousand backends take longer than the default timeout on a busy machine
const timeout = Math.max(120_000, numCreations * 600);
test(
  `creating, running and disposing ${numCreations} backends leaks no worker and no memory`,
  { timeout },
  async () => {
    const { host, count } = countingHost();
    const program = products(32, 2);
    const weightBytes = 2 ** 22; // of each backend, so that leaks of a few exceed what else changes
    const cycle = async (numThreads: number): Promise<void> => {
      const backend = await createWasmBackend({ maxMemoryBytes: 2 ** 23, host, numThreads, minSharedWork: 0 });
      const executable = await prepare(backend, program, 32);
      backend.view(backend.allocate({ sizeBytes: weightBytes, usage: 'weights', label: 'more' }))?.fill(1);
      await executable.run(scalarsOf(program, 3));
      await backend.dispose();
    };
    await Promise.all([2, 1, 1, 1, 1].map(cycle)); // loaded once per process
    await collectGarbage();
    const before = process.memoryUsage().rss;
    for (let round = 0; round < numCreations / 5; round++) {
      await Promise.all([2, 1, 1, 1, 1].map(cycle));
      expect(count()).toBe(0);
    }
    await collectGarbage();
    expect(process.memoryUsage().rss - before).toBeLessThan((numCreations / 4) * weightBytes);
  },
);

test('1000 executables of one backend reuse the same memory', async () => {
  const backend = await createWasmBackend({ ...small, numThreads: 1 });
  const program = products(32, 2);
  const before = backend.usedBytes;
  for (let cycle = 0; cycle < 1000; cycle++) {
    const weight = backend.allocate({ sizeBytes: 32 * 32 * 4, usage: 'weights', label: 'weight' });
    const executable = await backend.prepare(program, { buffers: new Map([['weight', weight]]) });
    await executable.run(scalarsOf(program, 1));
    await executable.dispose();
    backend.free(weight);
  }
  expect(backend.usedBytes).toBe(before);
  await backend.dispose();
});

test.each([
  ['numThreads', 0],
  ['numThreads', 1.5],
  ['numThreads', 65],
  ['maxMemoryBytes', 100],
  ['maxMemoryBytes', NaN],
  ['bytesPerMemory', 2 ** 33],
  ['reservedBytes', -1],
  ['minSharedWork', NaN],
  ['minSharedWork', -1],
  ['minSharedWork', 2 ** 31],
  ['maxCallerMs', NaN],
  ['maxCallerMs', -1],
  ['activations', 'f16'],
  ['relaxedSimd', 'yes'],
  ['int8Dot', 'unsigned'],
  ['sharedMemory', 'no'],
])('%s of %s is rejected', async (option, value) => {
  for (const sharedMemory of [true, false]) {
    const created = createWasmBackend({ ...small, numThreads: 1, sharedMemory, [option]: value });
    const error: unknown = await created.then(
      (backend) => backend.dispose(),
      (reason: unknown) => reason,
    );
    expect(error).toBeInstanceOf(ArgumentError);
    expect(String(error)).toMatch(new RegExp(`${option}.*expected .*${value}`, 'v'));
  }
});

test('allocation fails when memory is full, and succeeds after a free', async () => {
  const backend = await createWasmBackend({ ...small, numThreads: 1 });
  const allocate = (sizeBytes: number): ReturnType<Backend['allocate']> =>
    backend.allocate({ sizeBytes, usage: 'kv', label: 'cache' });
  const first = allocate(2 ** 21);
  expect(() => allocate(2 ** 21)).toThrow(CapacityError);
  backend.free(first);
  const again = allocate(2 ** 21 + 2 ** 20);
  expect(backend.view(again)?.every((byte) => byte === 0)).toBe(true);
  await backend.dispose();
});

test('views stay valid while the memory grows, and reused memory is zeroed', async () => {
  const backend = await createWasmBackend({ maxMemoryBytes: 2 ** 26, numThreads: 1 });
  const first = backend.allocate({ sizeBytes: 1000, usage: 'weights', label: 'first' });
  const view = backend.view(first) as Uint8Array;
  const second = backend.allocate({ sizeBytes: 2 ** 25, usage: 'weights', label: 'second' });
  view.fill(7);
  const copy = new Uint8Array(1000);
  await backend.read(first, 0, copy);
  expect(copy.every((byte) => byte === 7)).toBe(true);
  backend.free(first);
  const third = backend.allocate({ sizeBytes: 1000, usage: 'weights', label: 'third' });
  expect(backend.view(third)?.every((byte) => byte === 0)).toBe(true);
  expect(backend.view(second)?.length).toBe(2 ** 25);
  await backend.dispose();
});

test('the event loop runs during a long run', async () => {
  const backend = await createWasmBackend({ maxMemoryBytes: 2 ** 26, numThreads: 2 });
  const size = 512;
  const program = products(size, 400);
  const executable = await prepare(backend, program, size);
  let numTicks = 0;
  let isDone = false;
  const controller = new AbortController();
  const run = executable.run(scalarsOf(program, 64), { signal: controller.signal }).finally(() => (isDone = true));
  while (!isDone && numTicks < 50) {
    await new Promise((resolve) => setTimeout(resolve, 1));
    numTicks++;
  }
  // 13 GFLOP: many turns although the host awaits a single call, whose rest is not needed
  controller.abort(new Error('enough'));
  await expect(run).rejects.toThrow('enough');
  expect(numTicks).toBe(50);
  await backend.dispose();
});

test.each([true, false])('an abort stops a run between two ops (shared memory: %s)', async (sharedMemory) => {
  const backend = await createWasmBackend({ maxMemoryBytes: 2 ** 26, numThreads: 2, sharedMemory });
  const size = 256;
  const program = products(size, 4000);
  const executable = await prepare(backend, program, size);
  const controller = new AbortController();
  const reason = new Error('enough');
  const run = executable.run(scalarsOf(program, 64), { signal: controller.signal });
  setTimeout(() => controller.abort(reason), 5);
  await expect(run).rejects.toBe(reason);
  const again = new AbortController();
  const second = executable.run(scalarsOf(program, 64), { signal: again.signal });
  setTimeout(() => again.abort(reason), 5);
  await expect(second).rejects.toBe(reason);
  await backend.dispose();
});

test('dispose during a run', async () => {
  const { host, count } = countingHost();
  const backend = await createWasmBackend({ maxMemoryBytes: 2 ** 26, host, numThreads: 2 });
  const program = products(256, 4000);
  const executable = await prepare(backend, program, 256);
  const run = executable.run(scalarsOf(program, 64));
  await Promise.all([expect(run).rejects.toThrow(ReleasedError), backend.dispose()]);
  expect(count()).toBe(0);
});

test('a worker that dies rejects the run and every later one', async () => {
  const node = createHost();
  const dying: WasmHost = {
    ...node,
    startWorker(start, events) {
      if (start.thread === 0) return node.startWorker(start, events);
      const worker = new Worker('process.exit(3)', { eval: true });
      worker.on('exit', (code) => events.onFailure(new Error(`exit code ${code}`)));
      return { setBusy: () => undefined, terminate: async () => void (await worker.terminate()) };
    },
  };
  const backend = await createWasmBackend({ ...small, host: dying, numThreads: 2, minSharedWork: 0 });
  const program = products(32, 2);
  const executable = await prepare(backend, program, 32);
  await expect(executable.run(scalarsOf(program, 3))).rejects.toThrow(DeviceLostError);
  await expect(executable.run(scalarsOf(program, 3))).rejects.toThrow('a worker died');
  expect(await backend.lost).toBeInstanceOf(DeviceLostError);
  expect(() => backend.allocate({ sizeBytes: 1, usage: 'kv', label: 'late' })).toThrow(DeviceLostError);
  await backend.dispose();
});

test.each([0, 100])('a trap in a kernel rejects the run (up to %d ms on the calling thread)', async (maxCallerMs) => {
  const backend = await createWasmBackend({ ...small, numThreads: 2, maxCallerMs });
  const program = products(32, 2);
  const executable = await prepare(backend, program, 32);
  const outside = 2 ** 24; // the row of this token lies beyond the memory
  const failure = maxCallerMs === 0 ? DeviceLostError : BackendError; // only the former kills a worker
  await expect(executable.run(scalarsOf(program, 1, outside))).rejects.toThrow(failure);
  await backend.dispose();
});

test.each([0, 100])(
  'runs allocate no buffers and leak nothing (up to %d ms on the calling thread)',
  async (maxCallerMs) => {
    const backend = await createWasmBackend({ ...small, numThreads: 2, maxCallerMs });
    const program = products(32, 2);
    const executable = await prepare(backend, program, 32);
    const scalars = scalarsOf(program, 1);
    const target = new Float32Array(32);
    const runs = async (count: number): Promise<void> => {
      for (let i = 0; i < count; i++) {
        await executable.run(scalars);
        await executable.read('y', target);
      }
      await collectGarbage();
    };
    await runs(2000);
    // the process also has message buffers of the test runner; a leak of runs would appear in every round
    let [buffers, heap] = [Infinity, Infinity];
    for (let round = 0; round < 3 && (buffers > 0 || heap >= 2000 * 16); round++) {
      const before = process.memoryUsage();
      await runs(2000);
      const after = process.memoryUsage();
      buffers = Math.min(buffers, after.arrayBuffers - before.arrayBuffers);
      heap = Math.min(heap, after.heapUsed - before.heapUsed);
    }
    expect(buffers).toBeLessThanOrEqual(0);
    // code and its statistics may still grow a little, but not by one object per run
    expect(heap).toBeLessThan(2000 * 16);
    await backend.dispose();
  },
);

test('a program that takes too long on the calling thread moves to the workers', async () => {
  let ms = 0;
  const host: WasmHost = { ...createHost(), now: () => (ms += 10) };
  const started: number[] = [];
  const counting: WasmHost = {
    ...host,
    startWorker(start, events) {
      const handle = host.startWorker(start, events);
      return {
        terminate: () => handle.terminate(),
        setBusy(isBusy) {
          if (isBusy) started.push(start.thread);
          handle.setBusy(isBusy);
        },
      };
    },
  };
  const backend = await createWasmBackend({ ...small, host: counting, numThreads: 2, maxCallerMs: 2 });
  const program = products(32, 2);
  const executable = await prepare(backend, program, 32);
  await executable.run(scalarsOf(program, 1));
  const before = started.length;
  for (let i = 0; i < 3; i++) await executable.run(scalarsOf(program, 1));
  expect(started.length).toBeGreaterThan(before);
  await backend.dispose();
});

test.each([0, 100])(
  'runs of two executables are serialized (up to %d ms on the calling thread)',
  async (maxCallerMs) => {
    const backend = await createWasmBackend({ ...small, numThreads: 2, maxCallerMs });
    const program = products(32, 3);
    const [first, second] = [await prepare(backend, program, 32), await prepare(backend, program, 32)];
    const runs: Promise<void>[] = [];
    for (let i = 0; i < 20; i++) {
      await Promise.all(runs.splice(0));
      runs.push(first.run(scalarsOf(program, 64)), second.run(scalarsOf(program, 5)));
    }
    await Promise.all(runs);
    await backend.dispose();
  },
);
