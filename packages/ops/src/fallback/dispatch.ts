/**
 * Runs programs on a backend that lacks kernels for some of their records: the reference computes those on the host. A
 * backend implements `KernelBackend` and calls `dispatchProgram` in `prepare`; fallback is implemented only here.
 */
import { UnsupportedOpError } from '@winnow/tensor';
import type { Backend, BufferHandle, Executable, Fallback, PrepareOptions } from '../backend/backend.js';
import type { OpRecord, Program } from '../program/program.js';
import { createFallbackExecutable } from './executable.js';
import { withoutFallbacks } from './without-fallbacks.js';

/** What a backend provides to the dispatcher: its memory, and the execution of programs with all kernels. */
export interface KernelBackend extends Pick<
  Backend,
  'name' | 'supports' | 'allocate' | 'view' | 'read' | 'write' | 'free'
> {
  /** Prepares a program whose records are all supported. */
  prepareKernels(program: Program, options: PrepareOptions): Promise<Executable>;
  /** Milliseconds of any origin. */
  readonly now: () => number;
}

/**
 * Prepares a program with any ops: records without a kernel run on the reference, between segments of the others.
 * `Executable.fallbacks` names and counts them.
 * @throws {UnsupportedOpError} when an op has no kernel and `onUnsupported` is `'error'`, or when the op does not exist
 */
export async function dispatchProgram(
  backend: KernelBackend,
  program: Program,
  options: PrepareOptions,
): Promise<Executable> {
  const reasons = unsupportedRecords(backend, program);
  const [first] = reasons;
  if (first === undefined) return backend.prepareKernels(program, options);
  if (options.onUnsupported === 'error') {
    const [index, reason] = first;
    throw new UnsupportedOpError({ op: program.records[index].op, backend: backend.name, reason });
  }
  const split = withoutFallbacks(program, (record) => reasons.has(record));
  const shared = new Map<string, BufferHandle>();
  try {
    for (const [name, sizeBytes] of split.sharedBuffers) {
      shared.set(name, backend.allocate({ sizeBytes, usage: 'kv', label: name }));
    }
    const buffers = new Map([...options.buffers, ...shared]);
    const hostBuffers = new Set([...(options.hostBuffers ?? []), ...hostBufferNames(program, reasons)]);
    const kernels = await backend.prepareKernels(split.program, { ...options, buffers, hostBuffers });
    const fallbacks = countFallbacks(program, reasons);
    return createFallbackExecutable({ backend, program, split, kernels, buffers, shared, fallbacks, options });
  } catch (error) {
    for (const handle of shared.values()) backend.free(handle);
    throw error;
  }
}

/** Why records have no kernel, by index. */
function unsupportedRecords(backend: KernelBackend, { records }: Program): Map<number, string> {
  const reasons = new Map<number, string>();
  for (const [index, record] of records.entries()) {
    const support = backend.supports(record.op, { dtypes: dtypesOf(record), attributes: record.attributes });
    if (!support.supported) reasons.set(index, support.reason);
  }
  return reasons;
}

function dtypesOf({ inputs, outputs }: OpRecord): Record<string, OpRecord['inputs'][string]['dtype']> {
  return Object.fromEntries(Object.entries({ ...outputs, ...inputs }).map(([name, { dtype }]) => [name, dtype]));
}

/** Weights and caches that the host reads. */
function hostBufferNames({ records, buffers }: Program, reasons: ReadonlyMap<number, string>): string[] {
  return [...reasons.keys()].flatMap((index) => {
    const { inputs, outputs } = records[index];
    return [...Object.values(inputs), ...Object.values(outputs)].map(({ buffer }) => buffers[buffer].name);
  });
}

function countFallbacks({ records }: Program, reasons: ReadonlyMap<number, string>): Fallback[] {
  const counts = new Map<string, Fallback>();
  for (const [index, reason] of reasons) {
    const { op } = records[index];
    const key = `${op} ${reason}`;
    counts.set(key, { op, reason, numRecords: (counts.get(key)?.numRecords ?? 0) + 1 });
  }
  return [...counts.values()];
}
