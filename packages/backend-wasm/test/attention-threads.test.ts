/** Every attention op is bit-identical for any number of threads: outputs, masses, states. */
import {
  buildKernelProgram,
  float32Arithmetic,
  kernelCases,
  rngOf,
  selectCases,
  type KernelCase,
  type KernelData,
} from '@winnow/conformance';
import { createScalarBlock, type Backend, type BufferHandle } from '@winnow/ops';
import { sampled, testCoverage } from '@winnow/test-utils';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createWasmBackend } from '../src/index.js';

const ops = [
  'attention',
  'attention-mass',
  'subquadratic-attention',
  'sparq-attention',
  'h2o-attention',
  'streaming-attention',
  'page-topk-attention',
  'oracle-topk-attention',
  'verified-topk-attention',
  'delta-correction',
] as const;

/** More threads than some cases have work items; `minSharedWork` 0, since the cases are small. */
const variants = [
  { numThreads: 1 },
  { numThreads: 2, minSharedWork: 0 },
  { numThreads: 3, minSharedWork: 0 },
  { numThreads: 4, minSharedWork: 0 },
] as const;

const backends: Backend[] = [];
beforeAll(async () => {
  for (const variant of variants) {
    backends.push(await createWasmBackend({ maxMemoryBytes: 2 ** 26, maxCallerMs: 0, ...variant }));
  }
});
afterAll(async () => {
  for (const backend of backends) await backend.dispose();
});

/** All outputs of the op, by name. */
async function bitsOf(
  backend: Backend,
  { op, attributes }: KernelCase,
  data: KernelData,
): Promise<Map<string, Uint8Array>> {
  const { program, buffers, scalars } = buildKernelProgram(op, attributes, data, false, 8);
  const handles = new Map<string, BufferHandle>();
  for (const { name: label, usage, initial } of buffers) {
    const handle = backend.allocate({ sizeBytes: initial.length, usage, label });
    await backend.write(handle, 0, initial);
    handles.set(label, handle);
  }
  const executable = await backend.prepare(program, { buffers: handles, onUnsupported: 'error' });
  const block = createScalarBlock(program.scalars, program.symbols);
  for (const [slot, values] of scalars) block.slot(slot).set(values);
  await executable.run(block.words);
  const bits = new Map<string, Uint8Array>();
  for (const [label, expected] of Object.entries(data.expected)) {
    const numBytes = expected.kind === 'bytes' ? expected.bytes.length : 4 * expected.values.length;
    const found = new Uint8Array(numBytes);
    const buffer = buffers.find((candidate) => candidate.name === label);
    if (data.updated?.[label] !== undefined && buffer !== undefined) {
      await backend.read(handles.get(label) as BufferHandle, buffer.begin, found);
    } else {
      const isInteger = program.outputs.get(label)?.dtype === 'i32';
      await executable.read(label, isInteger ? new Int32Array(found.buffer) : new Float32Array(found.buffer));
    }
    bits.set(label, found);
  }
  await executable.dispose();
  for (const handle of handles.values()) backend.free(handle);
  return bits;
}

describe.each(ops)('%s', (op) => {
  const cases = sampled(selectCases(kernelCases[op] ?? [], testCoverage), 3);
  test.each(cases.map((kernelCase) => [kernelCase.name, kernelCase] as const))('%s', async (_name, kernelCase) => {
    const data = kernelCase.create(rngOf(`${op} ${kernelCase.name}`), float32Arithmetic());
    const [alone, ...together] = await Promise.all(backends.map((backend) => bitsOf(backend, kernelCase, data)));
    expect(alone?.size).toBeGreaterThan(0);
    for (const bits of together) expect(bits).toEqual(alone);
  });
});
