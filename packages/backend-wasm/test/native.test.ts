/** How the backend chooses native kernels, and that it works without them. Other tests cover their results. */
import type { NativeAttachment } from '@winnow/native';
import {
  createScalarBlock,
  ProgramBuilder,
  type Backend,
  type BufferHandle,
  type Executable,
  type Program,
} from '@winnow/ops';
import { createRng, DeviceLostError, encode, sizeOf } from '@winnow/tensor';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { createHost } from '../src/host/host.node.js';
import { heapBase } from '../src/kernels/layout.generated.js';
import { createWasmBackend, type CreateWasmBackendOptions, type WasmBackend, type WasmHost } from '../src/index.js';
import { breakEvenRatioOf } from '../src/backend/break-even.js';
import { usableLevels } from './native-host.js';
import { createScattered } from './scattered.js';

const [numTokens, numInputs, numOutputs] = [5, 256, 64];

function gaussian(seed: number, length: number): Float32Array {
  const rng = createRng(seed);
  return Float32Array.from({ length }, () => rng.nextGaussian());
}

function product(): Program {
  const b = new ProgramBuilder({});
  const x = b.external('x', 'weights', 'f32', [numTokens, numInputs]);
  const weight = b.external('weight', 'weights', 'q8_0', [numOutputs, numInputs]);
  b.output('y', b.activation('matmul', { x, weight }));
  return b.build();
}

/** The product of up to 9 tokens. */
function tokenProgram(): { readonly program: Program; readonly contents: Readonly<Record<string, Uint8Array>> } {
  const b = new ProgramBuilder({ T: 9 });
  const table = b.external('table', 'weights', 'f32', [9, numInputs]);
  const x = b.activation('embedding-lookup', { table, tokens: b.scalar('tokens', ['T']) });
  const weight = b.external('weight', 'weights', 'q8_0', [numOutputs, numInputs]);
  b.output('y', b.activation('matmul', { x, weight }));
  const weights = new Uint8Array(sizeOf('q8_0', numOutputs * numInputs));
  encode('q8_0', gaussian(2, numOutputs * numInputs), weights);
  return {
    program: b.build(),
    contents: { table: new Uint8Array(gaussian(1, 9 * numInputs).buffer), weight: weights },
  };
}

async function prepare(backend: Backend): Promise<Executable> {
  const weight = new Uint8Array(sizeOf('q8_0', numOutputs * numInputs));
  encode('q8_0', gaussian(2, numOutputs * numInputs), weight);
  const contents = { x: new Uint8Array(gaussian(1, numTokens * numInputs).buffer), weight };
  return backend.prepare(product(), { buffers: await load(backend, contents), onUnsupported: 'error' });
}

async function load(
  backend: Backend,
  contents: Readonly<Record<string, Uint8Array>>,
): Promise<Map<string, BufferHandle>> {
  const buffers = new Map<string, BufferHandle>();
  for (const [name, bytes] of Object.entries(contents)) {
    const buffer = backend.allocate({ sizeBytes: bytes.length, usage: 'weights', label: name });
    await backend.write(buffer, 0, bytes);
    buffers.set(name, buffer);
  }
  return buffers;
}

async function run(executable: Executable): Promise<Float32Array> {
  await executable.run(new Int32Array(0));
  const y = new Float32Array(numTokens * numOutputs);
  await executable.read('y', y);
  return y;
}

const alone = { sharedMemory: false, numThreads: 1, maxMemoryBytes: 2 ** 24 } as const;

const backends: WasmBackend[] = [];
afterEach(async () => {
  for (const backend of backends.splice(0)) await backend.dispose();
});

async function create(options: CreateWasmBackendOptions): Promise<WasmBackend> {
  const backend = await createWasmBackend({ numThreads: 2, maxMemoryBytes: 2 ** 26, minSharedWork: 0, ...options });
  backends.push(backend);
  return backend;
}

let known: Promise<Float32Array> | undefined;

/** What WebAssembly computes, with any number of threads: the calling one starts no worker. */
function expected(): Promise<Float32Array> {
  known ??= create({ ...alone, native: false })
    .then(prepare)
    .then(run);
  return known;
}

/** Integer sums are exact, and f32 sums of eight blocks differ by less than their rounding. */
function expectNear(y: Float32Array, exact: Float32Array): void {
  const largest = Math.max(...exact.map(Math.abs));
  for (const [i, value] of exact.entries()) expect(Math.abs((y[i] as number) - value)).toBeLessThan(largest * 2 ** -18);
}

const node = createHost();
const levels = await usableLevels();
const isBuilt = levels.length > 0;

describe('without native kernels', () => {
  test('the name, and no level', async () => {
    const backend = await create({ native: false });
    expect([backend.name, backend.nativeLevel, backend.notices]).toEqual(['wasm', undefined, []]);
    expect(backend.breakEvenRatio('q8_0', 'interleaved')).toBe(breakEvenRatioOf('wasm')('q8_0', 'interleaved'));
  });

  test('WINNOW_NATIVE turns them off, and a wrong value is a notice', async () => {
    vi.stubEnv('WINNOW_NATIVE', 'off');
    expect((await create({})).name).toBe('wasm');
    vi.stubEnv('WINNOW_NATIVE', 'sse9');
    const { name, notices } = await create({});
    expect([name, notices]).toEqual(['wasm', [expect.stringContaining('WINNOW_NATIVE: expected off')]]);
  });

  test('a host without them, unless they are required', async () => {
    const { openNative: _, ...host } = node;
    expect((await create({ host, native: 'auto' })).name).toBe('wasm');
    await expect(create({ host, native: true })).rejects.toThrow('native kernels: this host has none');
    await expect(create({ host, native: 'sse9' as 'avx2' })).rejects.toThrow('native: expected');
  });

  test('an addon that is refused: a notice, and the same results; an error if it is required', async () => {
    const host: WasmHost = { ...node, openNative: async () => ({ refusal: 'its trial ended with SIGABRT' }) };
    const backend = await create({ host });
    expect(backend.notices).toEqual(['native kernels: its trial ended with SIGABRT']);
    expect(await run(await prepare(backend))).toEqual(await expected());
    await expect(create({ host, native: true })).rejects.toThrow('native kernels: its trial ended with SIGABRT');
  });
});

/** A backend on the calling thread with such kernels. */
const createWith = (
  attach: () => Partial<NativeAttachment>,
  enter = (): (() => void) => () => undefined,
  options: CreateWasmBackendOptions = alone,
): Promise<WasmBackend> => {
  const idle: NativeAttachment = {
    run: () => false,
    measure: (_task, to) => to.fill(0).length > 0,
    connect: () => undefined,
  };
  const kernels = { level: 'avx2', path: 'none.node', enter, attach: () => ({ ...idle, ...attach() }) } as const;
  // workers cannot load such kernels
  const startWorker: WasmHost['startWorker'] = ({ module, memory, thread, numThreads, postsJobs }, events) =>
    node.startWorker({ module, memory, thread, numThreads, postsJobs }, events);
  return create({ ...options, host: { ...node, startWorker, openNative: async () => ({ kernels }) } });
};
const fail = (): never => {
  throw new Error('out of memory');
};

describe('kernels that decline or fail', () => {
  const unattached = 'native kernels: a thread cannot attach them, so WebAssembly computes everything';
  const short = 'native kernels: the memory has no room for their scratch, so WebAssembly computes some programs';

  test.each<readonly [string, () => Partial<NativeAttachment>, readonly string[]]>([
    ['every record when it runs', () => ({}), []],
    ['to attach', fail, [unattached]],
    ['to connect the barrier', () => ({ run: fail, connect: fail }), [unattached]],
    ['to fit their scratch', () => ({ run: fail, measure: (_task, to) => to.fill(2 ** 30).length > 0 }), [short]],
  ])('%s: the interpreter computes it', async (_, attach, notices) => {
    const backend = await createWith(attach);
    expect(await run(await prepare(backend))).toEqual(await expected());
    expect([backend.name, backend.numNativeRecords, backend.notices]).toEqual(['wasm+avx2', 0, notices]);
  });

  test('to attach to a memory, after the scratch was measured', async () => {
    let numAttached = 0;
    const backend = await createWith(() => (numAttached++ === 0 ? {} : fail()));
    expect(await run(await prepare(backend))).toEqual(await expected());
    expect([numAttached, backend.notices]).toEqual([2, [unattached]]);
  });

  test('programs that do not fit without native kernels either are refused', async () => {
    const backend = await createWith(() => ({ measure: (_task, to) => to.fill(2 ** 30).length > 0 }));
    const x = backend.allocate({ sizeBytes: numTokens * numInputs * 4, usage: 'weights', label: 'x' });
    const weight = backend.allocate({
      sizeBytes: sizeOf('q8_0', numOutputs * numInputs),
      usage: 'weights',
      label: 'w',
    });
    const buffers = new Map([
      ['x', x],
      ['weight', weight],
    ]);
    const sizeBytes = alone.maxMemoryBytes - heapBase - backend.usedBytes - 2 ** 14;
    backend.allocate({ sizeBytes, usage: 'weights', label: 'rest' });
    await expect(backend.prepare(product(), { buffers })).rejects.toThrow('WebAssembly memory for activations');
    expect(backend.notices).toEqual([]);
  });
});

describe('kernels that end a run', () => {
  test.each<readonly [string, CreateWasmBackendOptions]>([
    ['without shared memory', alone],
    ['beside workers', { numThreads: 1, maxCallerMs: 1000 }],
  ])('by an error on the calling thread, %s: the device is lost', async (_, options) => {
    const order: string[] = [];
    const enter = (): (() => void) => (order.push('enter'), () => void order.push('leave'));
    const backend = await createWith(() => ({ run: fail }), enter, options);
    const executable = await prepare(backend);
    await expect(run(executable)).rejects.toThrow('a kernel failed, perhaps a native one');
    await expect(run(executable)).rejects.toThrow('a kernel failed, perhaps a native one');
    expect(DeviceLostError.isInstance(await backend.lost)).toBe(true);
    expect(order).toEqual(['enter', 'leave', 'enter', 'leave']);
  });

  test('a process that ends in the first run with sizes of a magnitude leaves a trace of it', async () => {
    let numInside = 0;
    const entered: number[] = [];
    const isInsideAt: boolean[] = [];
    let numRows = 0;
    const enter = (): (() => void) => {
      numInside++;
      entered.push(numRows);
      return () => void numInside--;
    };
    const watch = (): boolean => (isInsideAt.push(numInside > 0), false);
    const backend = await createWith(() => ({ run: watch }), enter);
    const { program, contents } = tokenProgram();
    const executable = await backend.prepare(program, { buffers: await load(backend, contents) });
    const scalars = createScalarBlock(program.scalars, program.symbols);
    const runs: boolean[][] = [];
    for (numRows of [9, 8, 1, 3, 9, 2, 1]) {
      scalars.bind('T', numRows);
      scalars.slot('tokens').set([0, 1, 2, 3, 4, 5, 6, 7, 8].slice(0, numRows));
      await executable.run(scalars.words);
      runs.push([...new Set(isInsideAt.splice(0))]);
    }
    expect(entered).toEqual([9, 1, 3]);
    expect(runs).toEqual([[true], [false], [true], [true], [false], [false], [false]]);
    expect(numInside).toBe(0);
  });
});

describe.skipIf(!isBuilt)('with native kernels', () => {
  test('the name says the level, and records are counted', async () => {
    vi.stubEnv('WINNOW_NATIVE', undefined);
    const backend = await create({});
    expect(levels[0]).toBe(backend.nativeLevel);
    expect([backend.name, backend.notices]).toEqual([`wasm+${backend.nativeLevel}`, []]);
    expect(backend.breakEvenRatio('q8_0', 'interleaved')).toBe(breakEvenRatioOf('native')('q8_0', 'interleaved'));
    const executable = await prepare(backend);
    expectNear(await run(executable), await expected());
    await run(executable);
    expect(backend.numNativeRecords).toBe(2);
  });

  test('a worker that cannot load them: all threads use WebAssembly', async () => {
    const host: WasmHost = {
      ...node,
      startWorker: (start, events) =>
        node.startWorker(
          start.thread === 1 && start.native !== undefined
            ? { ...start, native: { ...start.native, path: 'missing.node' } }
            : start,
          events,
        ),
    };
    const backend = await create({ host, native: true, numThreads: 3, maxCallerMs: 0 });
    const executable = await prepare(backend);
    for (let round = 0; round < 3; round++) expect(await run(executable)).toEqual(await expected());
    expect(backend.numNativeRecords).toBe(0);
    expect(backend.notices).toEqual([expect.stringContaining('a thread cannot attach them')]);
  });

  test('a worker that dies ends its backend alone; a new one computes natively again', async () => {
    const started: { terminate(): Promise<void> }[] = [];
    const host: WasmHost = {
      ...node,
      startWorker: (start, events) => {
        const worker = node.startWorker(start, events);
        started.push({ terminate: () => (events.onFailure(new Error('killed')), worker.terminate()) });
        return worker;
      },
    };
    const backend = await create({ host, native: true, maxCallerMs: 0 });
    const executable = await prepare(backend);
    await run(executable);
    await started[1]?.terminate();
    await expect(run(executable)).rejects.toThrow('a worker died');
    const next = await create({ native: true, maxCallerMs: 0 });
    expectNear(await run(await prepare(next)), await expected());
    expect(next.numNativeRecords).toBe(1);
  });

  test('on the calling thread, with and without shared memory', async () => {
    for (const options of [{ maxCallerMs: 1000 }, { sharedMemory: false, maxMemoryBytes: 2 ** 24 }] as const) {
      const backend = await create({ native: true, numThreads: 1, ...options });
      expectNear(await run(await prepare(backend)), await expected());
      expect(backend.numNativeRecords).toBe(1);
    }
  });
});

describe.skipIf(!isBuilt)('native kernels and the life of a program', () => {
  test('several backends, and several memories of one', async () => {
    const exact = await expected();
    const { backend, inner } = await createScattered(2, { native: true, numThreads: 2, minSharedWork: 0 });
    const others = [await create({ native: true }), await create({ native: levels.at(-1) })];
    for (const each of [backend, ...others]) {
      const executable = await prepare(each);
      expectNear(await run(executable), exact);
    }
    expect(inner.numNativeRecords + others[0].numNativeRecords + others[1].numNativeRecords).toBe(3);
    await backend.dispose();
  });

  test('any number of tokens up to the capacity, and none', async () => {
    const { program, contents } = tokenProgram();
    const sides = [await create({ native: false }), ...(await Promise.all(levels.map((native) => create({ native }))))];
    const results = await Promise.all(
      sides.map(async (backend) => {
        const executable = await backend.prepare(program, { buffers: await load(backend, contents) });
        const y = new Float32Array(9 * numOutputs);
        for (const numRows of [9, 0, 1, 0, 2, 3, 0, 4, 5]) {
          const scalars = createScalarBlock(program.scalars, program.symbols);
          scalars.bind('T', numRows);
          scalars.slot('tokens').set([0, 1, 2, 3, 4, 5, 6, 7, 8].slice(0, numRows));
          await executable.run(scalars.words);
        }
        await executable.read('y', y);
        return y.subarray(0, 5 * numOutputs);
      }),
    );
    const [exact, ...others] = results;
    for (const y of others) expectNear(y, exact);
  });

  test('the memory grows between runs', async () => {
    const backend = await create({ native: true });
    const executable = await prepare(backend);
    const first = await run(executable);
    const large = backend.allocate({ sizeBytes: 2 ** 25, usage: 'weights', label: 'large' });
    const next = await prepare(backend);
    expect([await run(executable), await run(next)]).toEqual([first, first]);
    backend.free(large);
  });
});
