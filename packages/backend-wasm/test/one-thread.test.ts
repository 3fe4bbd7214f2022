/** Hosts on which workers cannot start: the backend computes on the calling thread and says why. */
import { ProgramBuilder } from '@winnow/ops';
import { BackendError } from '@winnow/tensor';
import { afterEach, expect, test, vi } from 'vitest';
import { createHost } from '../src/host/host.node.js';
import type { WasmHost } from '../src/host/host.js';
import { createWasmBackend, measurePeaks } from '../src/index.js';

const refusal = 'workers cannot start';
const host: WasmHost = {
  ...createHost(),
  availableParallelism: 8,
  workerRefusal: async () => refusal,
  startWorker: () => {
    throw new Error('a worker was started');
  },
};
const small = { host, maxMemoryBytes: 2 ** 24 };

afterEach(() => vi.unstubAllGlobals());

test.each([
  [{}, [`one thread instead of 8: ${refusal}`]],
  [{ numThreads: 3 }, [`one thread instead of 3: ${refusal}`]],
  [{ numThreads: 1 }, []],
  [{ sharedMemory: false }, []],
])('with the options %j', async (options, notices) => {
  const backend = await createWasmBackend({ ...small, ...options });
  expect(backend.numThreads).toBe(1);
  expect(backend.notices).toEqual(notices);
  const b = new ProgramBuilder({});
  const x = b.external('x', 'weights', 'f32', [1, 4]);
  b.output('y', b.activation('matmul', { x, weight: b.external('w', 'weights', 'f32', [1, 4]) }));
  const buffers = new Map(
    ['x', 'w'].map((label) => [label, backend.allocate({ sizeBytes: 16, usage: 'weights', label })]),
  );
  for (const buffer of buffers.values()) {
    await backend.write(buffer, 0, new Uint8Array(Float32Array.of(1, 2, 3, 4).buffer));
  }
  const executable = await backend.prepare(b.build(), { buffers });
  await executable.run(new Int32Array(0));
  const y = new Float32Array(1);
  await executable.read('y', y);
  expect(y).toEqual(Float32Array.of(30));
  await backend.dispose();
});

test('required shared memory is refused', async () => {
  const created = createWasmBackend({ ...small, sharedMemory: true });
  await expect(created).rejects.toThrow(BackendError);
  await expect(created).rejects.toThrow(`wasm: shared memory: ${refusal}`);
});

test('a page that is not isolated', async () => {
  vi.stubGlobal('SharedArrayBuffer', undefined);
  const { host: _host, ...options } = small;
  const backend = await createWasmBackend({ ...options, numThreads: 2 });
  const [notice] = backend.notices;
  expect(notice).toMatch(/^one thread instead of 2: .*Cross-Origin-Opener-Policy.*Cross-Origin-Embedder-Policy/);
  await backend.dispose();
});

test('peaks are those of one thread', async () => {
  const { numThreads } = await measurePeaks({ host, memoryBytes: 2 ** 22, probeMs: 1 });
  expect(numThreads).toBe(1);
});
