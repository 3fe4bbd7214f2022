/** Programs and buffers in several memories, kept artificially small. */
import { Worker } from 'node:worker_threads';
import { assignVariants, float32Arithmetic, programCases, type ProgramCase } from '@winnow/conformance';
import { createScalarBlock, ProgramBuilder, type Backend, type BufferHandle, type Program } from '@winnow/ops';
import { CapacityError, DeviceLostError, encode, ReleasedError, sizeOf } from '@winnow/tensor';
import { testCoverage } from '@winnow/test-utils';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createHost } from '../src/host/host.node.js';
import { createWasmBackend, type CreateWasmBackendOptions, type WasmBackend, type WasmHost } from '../src/index.js';
import { heapBase } from '../src/kernels/layout.generated.js';
import { createScattered } from './scattered.js';

const mebibyte = 2 ** 20;
const arithmetic = float32Arithmetic();

/** Limits with `room` bytes for weights and caches in each memory. */
function limits(room: number, numMemories = 8): CreateWasmBackendOptions {
  const bytesPerMemory = 2 * mebibyte; // much more than the scratch of these programs
  const reservedBytes = bytesPerMemory - heapBase - room;
  return { bytesPerMemory, reservedBytes, maxMemoryBytes: numMemories * bytesPerMemory };
}

const made = new Map<ProgramCase, ReturnType<ProgramCase['create']>>();

/** All outputs of a case's steps, as bits. */
async function outputsOf(backend: Backend, programCase: ProgramCase): Promise<string[]> {
  const { program, contents, steps } = made.get(programCase) ?? programCase.create(arithmetic);
  made.set(programCase, { program, contents, steps });
  const buffers = new Map<string, BufferHandle>();
  for (const { name, usage, sizeBytes } of program.buffers) {
    const bytes = contents.get(name);
    if (bytes === undefined) continue;
    const buffer = backend.allocate({ sizeBytes, usage, label: name });
    await backend.write(buffer, 0, bytes);
    buffers.set(name, buffer);
  }
  const executable = await backend.prepare(program, { buffers });
  const block = createScalarBlock(program.scalars, program.symbols);
  const found: string[] = [];
  for (const { scalars, boundaries, expected } of steps) {
    for (const [name, values] of Object.entries(scalars)) block.slot(name).set(values);
    await executable.run(block.words, {
      async onBoundary(boundary) {
        for (const [name, bytes] of Object.entries(boundaries?.[boundary] ?? {})) {
          await backend.write(buffers.get(name) as BufferHandle, 0, bytes);
        }
      },
    });
    for (const [name, output] of Object.entries(expected)) {
      if (output.kind === 'bytes') continue;
      const { length } = output.values;
      const target = output.kind === 'integers' ? new Int32Array(length) : new Float32Array(length);
      await executable.read(name, target);
      found.push(Buffer.from(target.buffer).toString('hex'));
    }
  }
  await executable.dispose();
  for (const buffer of buffers.values()) backend.free(buffer);
  return found;
}

const places: Readonly<Record<string, CreateWasmBackendOptions>> = {
  '1 thread': { numThreads: 1, maxCallerMs: 0 },
  '2 threads': { numThreads: 2, minSharedWork: 0 },
  'the calling thread': { numThreads: 2, maxCallerMs: 100 },
  'without shared memory': { sharedMemory: false },
};

const placesOfCases = assignVariants(programCases, Object.keys(places), testCoverage);

describe.each(Object.entries(places))('whole programs in three memories, %s', (name, options) => {
  let one: WasmBackend;
  let scattered: Awaited<ReturnType<typeof createScattered>>;
  beforeAll(async () => {
    one = await createWasmBackend({ ...options, maxMemoryBytes: 2 ** 26 });
    scattered = await createScattered(3, options);
  });
  afterAll(() => Promise.all([one.dispose(), scattered.backend.dispose()]));

  const chosen = programCases.filter((programCase) => placesOfCases.get(programCase)?.includes(name));
  test.each(chosen.map((programCase) => [programCase.name, programCase] as const))(
    '%s: same bits as in one',
    async (_caseName, programCase) => {
      expect(await outputsOf(scattered.backend, programCase)).toEqual(await outputsOf(one, programCase));
      expect([one.numMemories, scattered.inner.numMemories]).toEqual([1, 3]);
    },
  );
});

const size = 256;
const layerBytes = sizeOf('q8_0', size * size);

/** A matmul per layer, a cache that the first layer fills and the last one reads, and a short vector for all. */
function layers(numLayers: number, numTokens = 4): Program {
  const b = new ProgramBuilder({ T: numTokens });
  const tokens = b.scalar('tokens', ['T']);
  const table = b.external('table', 'weights', 'f32', [8, size]);
  const norm = b.external('norm', 'weights', 'f32', [size]);
  const positions = b.external('positions', 'kv', 'i32', [2, 4]);
  let x = b.activation('embedding-lookup', { table, tokens });
  b.append('position-append', { slots: tokens, positions: tokens }, {}, { slotPositions: positions });
  for (let layer = 0; layer < numLayers; layer++) {
    b.setLayer(layer);
    const weight = b.external(`weight ${layer}`, 'weights', 'q8_0', [size, size]);
    const y = b.activation('matmul', { x: b.activation('rms-norm', { x, weight: norm }, { eps: 1e-5 }), weight });
    x = b.activation('add', { a: x, b: y });
  }
  b.output('x', x);
  b.output('y', b.activation('matmul', { x, weight: table }));
  return b.build();
}

const encoded = new Map<number, Uint8Array>();

/** The weights of a layer, which take longer to encode than to use. */
function weightOf(seed: number): Uint8Array {
  const bytes = encoded.get(seed) ?? new Uint8Array(layerBytes);
  if (encoded.has(seed)) return bytes;
  const values = Float32Array.from({ length: size * size }, (_, i) => 0.05 * Math.sin(i * 0.37 + seed));
  encode('q8_0', values, bytes);
  encoded.set(seed, bytes);
  return bytes;
}

/** Allocates and fills the buffers of a program. */
async function load(backend: Backend, program: Program): Promise<Map<string, BufferHandle>> {
  const buffers = new Map<string, BufferHandle>();
  for (const { name, usage, sizeBytes } of program.buffers.slice(2)) {
    const buffer = backend.allocate({ sizeBytes, usage, label: name });
    const seed = name.length + Number(name.at(-1)) || 1;
    if (name.startsWith('weight')) await backend.write(buffer, 0, weightOf(seed));
    else if (usage === 'weights') {
      const values = Float32Array.from({ length: sizeBytes / 4 }, (_, i) => Math.sin(i * 0.37 + seed));
      await backend.write(buffer, 0, new Uint8Array(values.buffer));
    }
    buffers.set(name, buffer);
  }
  return buffers;
}

function scalarsOf(program: Program, tokens: readonly number[]): Int32Array {
  const block = createScalarBlock(program.scalars, program.symbols);
  block.bind('T', tokens.length);
  block.slot('tokens').set(tokens);
  return block.words;
}

async function valuesOf(backend: Backend, program: Program): Promise<number[]> {
  const buffers = await load(backend, program);
  const executable = await backend.prepare(program, { buffers });
  const found: number[] = [];
  for (const tokens of [[3, 1, 2, 0], [5]]) {
    await executable.run(scalarsOf(program, tokens));
    for (const [name, width] of [
      ['x', size],
      ['y', 8],
    ] as const) {
      const target = new Float32Array(tokens.length * width);
      await executable.read(name, target);
      found.push(...target);
    }
  }
  await executable.dispose();
  for (const buffer of buffers.values()) backend.free(buffer);
  return found;
}

test.each([1, 2])(
  'memories are filled layer by layer, and int8 matmuls are bit-identical (%d threads)',
  async (numThreads) => {
    const program = layers(12);
    const options = { numThreads, minSharedWork: 0 };
    const one = await createWasmBackend({ ...options, maxMemoryBytes: 2 ** 26 });
    const several = await createWasmBackend({ ...options, ...limits(4.5 * layerBytes) });
    const buffers = await load(several, program);
    expect(several.numMemories).toBe(3);
    for (const buffer of buffers.values()) several.free(buffer);
    expect(several.numMemories).toBe(1);
    expect(several.usedBytes).toBe(0);
    expect(await valuesOf(several, program)).toEqual(await valuesOf(one, program));
    expect(several.usedBytes).toBe(0);
    await Promise.all([one.dispose(), several.dispose()]);
  },
);

test('buffers of a group are in one memory', async () => {
  const backend = await createWasmBackend({ numThreads: 1, ...limits(mebibyte) });
  const allocate = (part: number, group?: { sizeBytes: number }): void => {
    const request = { sizeBytes: part * mebibyte, usage: 'kv', label: 'cache' } as const;
    backend.allocate(group === undefined ? request : { ...request, group });
  };
  allocate(0.625);
  const group = { sizeBytes: 0.5 * mebibyte };
  allocate(0.125, group); // fits the first memory, but the rest of the group does not
  expect(backend.numMemories).toBe(2);
  allocate(0.375, group);
  allocate(0.375);
  expect(backend.numMemories).toBe(2);
  await backend.dispose();
});

test('the host reads and writes buffers in several memories', async () => {
  const { backend } = await createScattered(3, { numThreads: 1 });
  const b = new ProgramBuilder({});
  const [large, small, other] = [
    b.external('large', 'kv', 'f32', [8, 64]),
    b.external('small', 'kv', 'f32', [2, 64]),
    b.external('other', 'kv', 'f32', [8, 64]),
  ];
  b.output(
    'first',
    b.activation('add', { a: b.activation('gather-rows', { x: large, rows: b.scalar('r', [2]) }), b: small }),
  );
  b.output('second', b.activation('matmul', { x: small, weight: other }));
  const program = b.build();
  const buffers = new Map<string, BufferHandle>();
  const fill = async (name: string, value: number): Promise<void> => {
    const { sizeBytes } = buffers.get(name) as BufferHandle;
    const bytes = new Uint8Array(new Float32Array(sizeBytes / 4).fill(value).buffer);
    await backend.write(buffers.get(name) as BufferHandle, 0, bytes);
  };
  for (const { name, usage, sizeBytes } of program.buffers.slice(2)) {
    buffers.set(name, backend.allocate({ sizeBytes, usage, label: name }));
    await fill(name, 1);
  }
  const executable = await backend.prepare(program, { buffers });
  const results: number[] = [];
  for (const value of [1, 2, 5]) {
    await fill('small', value);
    await executable.run(createScalarBlock(program.scalars, program.symbols).words);
    const [first, second] = [new Float32Array(1), new Float32Array(1)];
    await executable.read('first', first);
    await executable.read('second', second);
    results.push(...first, ...second);
  }
  expect(results).toEqual([2, 64, 3, 128, 6, 320]);
  (backend.view(buffers.get('small') as BufferHandle) as Uint8Array).fill(0);
  await executable.run(createScalarBlock(program.scalars, program.symbols).words);
  const second = new Float32Array(1);
  await executable.read('second', second);
  expect([...second]).toEqual([0]);
  backend.free(buffers.get('small') as BufferHandle);
  await expect(executable.run(createScalarBlock(program.scalars, program.symbols).words)).rejects.toThrow(
    ReleasedError,
  );
  await backend.dispose();
});

describe('memory that is full', () => {
  const allocate = (backend: WasmBackend, sizeBytes: number): BufferHandle =>
    backend.allocate({ sizeBytes, usage: 'weights', label: 'matrix' });

  test('a buffer larger than any memory', async () => {
    const backend = await createWasmBackend({ numThreads: 1, ...limits(mebibyte) });
    expect(() => allocate(backend, 3 * mebibyte)).toThrow(CapacityError);
    expect(backend.numMemories).toBe(1);
    await backend.dispose();
  });

  test('all memories together', async () => {
    const backend = await createWasmBackend({ numThreads: 1, ...limits(mebibyte, 3) });
    const held: BufferHandle[] = [];
    const fill = (): void => {
      for (;;) held.push(allocate(backend, mebibyte / 2));
    };
    expect(fill).toThrow(CapacityError);
    expect(backend.numMemories).toBe(3);
    const numHeld = held.length;
    for (const buffer of held.splice(0)) backend.free(buffer);
    expect(backend.numMemories).toBe(1);
    expect(fill).toThrow(CapacityError);
    expect(held.length).toBe(numHeld);
    await backend.dispose();
  });

  test('an op with tensors in two memories that fit into neither', async () => {
    const backend = await createWasmBackend({ numThreads: 1, ...limits(1.5 * mebibyte, 2) });
    const b = new ProgramBuilder({});
    const numColumns = mebibyte / 4;
    const rows = b.external('rows', 'kv', 'f32', [1, numColumns]);
    const others = b.external('others', 'kv', 'f32', [1, numColumns]);
    b.output('sum', b.activation('matmul', { x: rows, weight: others }));
    const program = b.build();
    const buffers = await load(backend, program);
    expect(backend.numMemories).toBe(2);
    const used = backend.usedBytes;
    await expect(backend.prepare(program, { buffers })).rejects.toThrow(/copy of .* for ops in another memory/);
    await expect(backend.prepare(program, { buffers })).rejects.toThrow(CapacityError);
    expect(backend.usedBytes).toBe(used);
    await backend.dispose();
  });
});

/** Twelve layers, at most four per memory, for up to 64 tokens. */
async function several(
  host: WasmHost,
): Promise<{ backend: WasmBackend; program: Program; buffers: Map<string, BufferHandle> }> {
  const program = layers(12, 64);
  const backend = await createWasmBackend({ host, numThreads: 2, minSharedWork: 0, ...limits(4.5 * layerBytes) });
  return { backend, program, buffers: await load(backend, program) };
}

test('an aborted run stops between two records, in any memory, and can be repeated', async () => {
  const { backend, program, buffers } = await several(createHost());
  const executable = await backend.prepare(program, { buffers, profile: true });
  const scalars = scalarsOf(
    program,
    Array.from({ length: 64 }, (_, i) => i % 8),
  );
  await executable.run(scalars);
  const values = new Float32Array(64 * 8);
  await executable.read('y', values);
  const reason = new Error('enough');
  for (let delay = 0; delay < 6; delay++) {
    const controller = new AbortController();
    const run = executable.run(scalars, { signal: controller.signal }).then(
      () => undefined,
      (error: unknown) => error,
    );
    setTimeout(() => controller.abort(reason), delay / 2);
    expect([undefined, reason]).toContain(await run);
  }
  await executable.run(scalars);
  const again = new Float32Array(64 * 8);
  await executable.read('y', again);
  expect(again).toEqual(values);
  expect(executable.profile().map(({ op }) => op)).toEqual(program.records.map(({ op }) => op));
  expect(
    executable
      .profile()
      .filter(({ op }) => op === 'matmul')
      .every(({ timeMs }) => timeMs > 0),
  ).toBe(true);
  await backend.dispose();
});

test('a worker that dies in one memory ends the workers of the others', async () => {
  const node = createHost();
  const workers: Worker[] = [];
  let numAlive = 0;
  const host: WasmHost = {
    ...node,
    startWorker(start, events) {
      numAlive++;
      if (workers.length < 3) {
        workers.push(new Worker('', { eval: true }));
        const handle = node.startWorker(start, events);
        return {
          setBusy: (isBusy) => handle.setBusy(isBusy),
          terminate: () => handle.terminate().finally(() => numAlive--),
        };
      }
      const worker = new Worker('process.exit(3)', { eval: true });
      worker.on('exit', (code) => events.onFailure(new Error(`exit code ${code}`)));
      return {
        setBusy: () => undefined,
        terminate: async () => void (await worker.terminate().finally(() => numAlive--)),
      };
    },
  };
  const { backend, program, buffers } = await several(host);
  await expect(
    backend.prepare(program, { buffers }).then((executable) => executable.run(scalarsOf(program, [1]))),
  ).rejects.toThrow(DeviceLostError);
  expect(() => backend.allocate({ sizeBytes: 1, usage: 'kv', label: 'more' })).toThrow(DeviceLostError);
  await backend.dispose();
  expect(numAlive).toBe(0);
});

/** Numbers are compared after each, and do not depend on time. */
const numLoads = testCoverage === 'full' ? 100 : 3;

test(`loading, running and freeing ${numLoads} times leaks no memory and no worker`, async () => {
  const node = createHost();
  let numAlive = 0;
  const host: WasmHost = {
    ...node,
    startWorker(start, events) {
      numAlive++;
      const handle = node.startWorker(start, events);
      return {
        setBusy: (isBusy) => handle.setBusy(isBusy),
        terminate: () => handle.terminate().finally(() => numAlive--),
      };
    },
  };
  const program = layers(6);
  const backend = await createWasmBackend({ host, numThreads: 1, maxCallerMs: 0, ...limits(2.5 * layerBytes) });
  for (let cycle = 0; cycle < numLoads; cycle++) {
    const buffers = await load(backend, program);
    const executable = await backend.prepare(program, { buffers });
    await executable.run(scalarsOf(program, [cycle % 8]));
    expect([backend.numMemories, numAlive]).toEqual([3, 3]);
    await executable.dispose();
    for (const buffer of buffers.values()) backend.free(buffer);
    expect([backend.numMemories, backend.usedBytes]).toEqual([1, 0]);
  }
  await backend.dispose();
  expect(numAlive).toBe(0);
});
