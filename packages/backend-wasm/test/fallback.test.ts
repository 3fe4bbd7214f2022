/** Programs with fallback records on the host, with repacked weights and buffers in several memories. */
import { programCases, checkProgramCase, float32Arithmetic } from '@winnow/conformance';
import {
  createScalarBlock,
  dispatchProgram,
  ProgramBuilder,
  type Backend,
  type Executable,
  type KernelBackend,
  type Program,
} from '@winnow/ops';
import { encode, sizeOf } from '@winnow/tensor';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createWasmBackend } from '../src/index.js';
import { createScattered } from './scattered.js';

/** The backend without a kernel for an op. */
function without(op: string, inner: Backend): Backend {
  const backend: Backend = {
    ...inner,
    supports: (name, description) =>
      name === op ? { supported: false, reason: 'left out' } : inner.supports(name, description),
    prepare: (program, options) => dispatchProgram(kernels, program, options),
  };
  const kernels: KernelBackend = { ...backend, now: () => performance.now(), prepareKernels: inner.prepare };
  return backend;
}

const options = { numThreads: 2, maxMemoryBytes: 2 ** 26, activations: 'f32', maxCallerMs: 0 } as const;
const arithmetic = float32Arithmetic(true);
const transformer = programCases.filter(({ name }) => name.startsWith('transformer, q8_0 weights, f32 cache'));

describe('a transformer, in one memory and in several', () => {
  let backends: readonly Backend[];
  beforeAll(async () => {
    backends = [await createWasmBackend(options), (await createScattered(3, options)).backend];
  });
  afterAll(() => Promise.all(backends.map((backend) => backend.dispose())));

  test.each(['matmul', 'kv-append', 'embedding-lookup'])('without the kernel for %s', async (op) => {
    for (const backend of backends) {
      for (const programCase of transformer) {
        const found = await checkProgramCase(without(op, backend), programCase, { arithmetic, allowFallback: true });
        expect(found).toEqual([]);
      }
    }
  });
});

const [numRows, width] = [64, 128];

/** `table[tokens]` and its product with the whole table, as with tied embeddings. */
function tied(): Program {
  const b = new ProgramBuilder({ T: 2 });
  const table = b.external('table', 'weights', 'q8_0', [numRows, width]);
  const x = b.activation('embedding-lookup', { table, tokens: b.scalar('tokens', ['T']) });
  b.output('x', x);
  b.output('y', b.activation('matmul', { x, weight: table }));
  return b.build();
}

async function run(executable: Executable, token: number): Promise<Float32Array> {
  const { scalars, symbols } = executable.program;
  const block = createScalarBlock(scalars, symbols);
  block.bind('T', 2);
  block.slot('tokens').set([token, 3]);
  await executable.run(block.words);
  const found = new Float32Array(2 * (numRows + width));
  await executable.read('x', found.subarray(0, 2 * width));
  await executable.read('y', found.subarray(2 * width));
  return found;
}

test('a weight that the host reads is not repacked, and is restored if another program repacked it', async () => {
  const backend = await createWasmBackend({ ...options, activations: 'int8' });
  const bytes = new Uint8Array(sizeOf('q8_0', numRows * width));
  encode(
    'q8_0',
    Float32Array.from({ length: numRows * width }, (_, i) => Math.sin(i)),
    bytes,
  );
  const table = backend.allocate({ sizeBytes: bytes.length, usage: 'weights', label: 'table' });
  await backend.write(table, 0, bytes);
  const buffers = new Map([['table', table]]);
  const whole = await backend.prepare(tied(), { buffers });
  const split = await without('embedding-lookup', backend).prepare(tied(), { buffers, profile: true });
  expect(split.fallbacks).toEqual([{ op: 'embedding-lookup', reason: 'left out', numRecords: 1 }]);
  for (const token of [5, 63, 0]) {
    const [expected, found] = [await run(whole, token), await run(split, token)];
    const bound = 0.02 * Math.max(...expected.map(Math.abs)); // the other one quantizes activations to 8 bits
    expect(Math.max(...found.map((value, i) => Math.abs(value - expected[i])))).toBeLessThan(bound);
    expect(found.subarray(0, 2 * width)).toEqual(expected.subarray(0, 2 * width));
  }
  expect(split.profile().map(({ op, numRuns }) => [op, numRuns])).toEqual([
    ['embedding-lookup', 3],
    ['matmul', 3],
  ]);
  const before = backend.usedBytes;
  await split.dispose();
  expect(backend.usedBytes).toBeLessThan(before);
  await backend.dispose();
});
