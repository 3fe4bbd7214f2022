/** Runs one case on one backend and reports failures. */
import { createScalarBlock, type Backend, type Executable, type OpDescription } from '@winnow/ops';
import type { Arithmetic } from '../arithmetic.js';
import { compareExact, compareOutput } from '../compare.js';
import { allocateGuarded, checkGuarded } from '../guarded-memory.js';
import type { Expected, KernelCase, KernelData } from '../kernel-case.js';
import { rngOf } from '../values.js';
import { buildKernelProgram, hasDynamicSizes, type KernelProgram } from './kernel-program.js';

/** Whether the sizes of a program are numbers, or symbols with inputs in the arena and the scalar block. */
export const sizeKinds = ['fixed', 'dynamic'] as const;
export type SizeKind = (typeof sizeKinds)[number];

export interface KernelCheckOptions {
  readonly arithmetic: Arithmetic;
  /** The programs of a case with token axes; others have fixed sizes. Default: one of each kind. */
  readonly sizes?: readonly SizeKind[] | undefined;
  /** Whether the backend may run this op on the reference. Default false: a fallback is a failure. */
  readonly allowFallback?: boolean;
}

/** The argument of `Backend.supports` for a case. */
export function descriptionOf({ dtypes, attributes }: KernelCase): OpDescription {
  return { dtypes, attributes };
}

/**
 * Runs the programs of a case, each twice on the same memory.
 * @returns failures, one line each; empty when the case passes
 */
export async function checkKernelCase(
  backend: Backend,
  kernelCase: KernelCase,
  { arithmetic, sizes = sizeKinds, allowFallback = false }: KernelCheckOptions,
): Promise<string[]> {
  const { op, name, attributes } = kernelCase;
  const data = kernelCase.create(rngOf(`${op} ${name}`), arithmetic);
  const failures: string[] = [];
  for (const size of hasDynamicSizes(data) ? sizes : (['fixed'] as const)) {
    const isDynamic = size === 'dynamic';
    // whole cache lines, then an odd number of blocks: aligned and unaligned weights
    const numGuardBlocks = isDynamic ? 1 + (name.length % 3) : 64;
    const kernelProgram = buildKernelProgram(op, attributes, data, isDynamic, numGuardBlocks);
    const found = await checkKernelProgram(backend, kernelProgram, data, allowFallback);
    failures.push(...found.map((failure) => `${op} / ${name} (${size} sizes): ${failure}`));
  }
  return failures;
}

async function checkKernelProgram(
  backend: Backend,
  kernelProgram: KernelProgram,
  data: KernelData,
  allowFallback: boolean,
): Promise<string[]> {
  const { program, buffers, scalars } = kernelProgram;
  const handles = await allocateGuarded(backend, buffers);
  const onUnsupported = allowFallback ? 'fallback' : 'error';
  let executable: Executable | undefined;
  const failures: string[] = [];
  try {
    executable = await backend.prepare(program, { buffers: handles, onUnsupported });
    if (!allowFallback) failures.push(...fallbackFailures(executable));
    const block = createScalarBlock(program.scalars, program.symbols);
    for (const [name, values] of scalars) block.slot(name).set(values);
    let first: Map<string, Uint8Array> | undefined;
    for (const run of ['first', 'second']) {
      for (const { name, initial } of buffers) {
        if (data.updated?.[name] !== undefined) await backend.write(handles.get(name)!, 0, initial);
      }
      await executable.run(block.words);
      const bytes = new Map<string, Uint8Array>();
      failures.push(...(await checkOutputs(executable, kernelProgram, data, bytes)));
      for (const buffer of buffers) {
        const expected = data.updated?.[buffer.name] === undefined ? undefined : data.expected[buffer.name];
        const handle = handles.get(buffer.name)!;
        let content = expected?.kind === 'bytes' ? expected.bytes : undefined;
        if (expected?.kind === 'close') {
          // compared by its bounds; then only the guards remain
          content = new Uint8Array(buffer.end - buffer.begin);
          await backend.read(handle, buffer.begin, content);
          bytes.set(buffer.name, content);
          const failure = compareOutput(new Float32Array(content.buffer), expected);
          if (failure !== undefined) failures.push(`${buffer.name}: ${failure}`);
        }
        failures.push(...(await checkGuarded(backend, handle, buffer, content)));
      }
      if (failures.length > 0) return failures.map((failure) => `${run} run: ${failure}`);
      first ??= bytes;
      for (const [name, found] of bytes) {
        const difference = compareExact(found, first.get(name) as Uint8Array);
        if (difference !== undefined) failures.push(`${name} differs between two runs: ${difference}`);
      }
    }
  } catch (error) {
    failures.push(`threw ${String(error)}`);
  } finally {
    await executable?.dispose();
    for (const handle of handles.values()) backend.free(handle);
  }
  return failures;
}

/** An executable that was prepared without fallbacks must not report any. */
export function fallbackFailures({ fallbacks }: Pick<Executable, 'fallbacks'>): string[] {
  return fallbacks.map(({ op, reason, numRecords }) => `${numRecords} records of ${op} fell back: ${reason}`);
}

async function checkOutputs(
  executable: Executable,
  { canaries }: KernelProgram,
  data: KernelData,
  bytes: Map<string, Uint8Array>,
): Promise<string[]> {
  const failures: string[] = [];
  for (const [name, expected] of Object.entries(data.expected)) {
    if (data.updated?.[name] !== undefined) continue;
    const target = targetOf(executable, name, expected);
    await executable.read(name, target);
    bytes.set(name, new Uint8Array(target.buffer));
    const failure = compareOutput(target, expected);
    if (failure !== undefined) failures.push(`${name}: ${failure}`);
  }
  for (const [name, expected] of canaries) {
    const found = new Float32Array(expected.length);
    await executable.read(name, found);
    const failure = compareExact(found, expected);
    if (failure !== undefined) failures.push(`${name} changed: ${failure}`);
  }
  return failures;
}

function targetOf({ program }: Executable, name: string, expected: Expected): Float32Array | Int32Array {
  const numValues = expected.kind === 'bytes' ? expected.bytes.length / 4 : expected.values.length;
  return program.outputs.get(name)?.dtype === 'i32' ? new Int32Array(numValues) : new Float32Array(numValues);
}

/**
 * A case that the backend does not support: it must report that, reject it if fallbacks are errors, and otherwise give
 * the right result and count the fallback.
 */
export async function checkUnsupportedCase(
  backend: Backend,
  kernelCase: KernelCase,
  options: KernelCheckOptions,
): Promise<string[]> {
  const { op, name } = kernelCase;
  const failures: string[] = [];
  if (backend.supports(op, descriptionOf(kernelCase)).supported) failures.push(`${op} / ${name}: says it is supported`);
  const refusals = await checkKernelCase(backend, kernelCase, { ...options, allowFallback: false });
  if (refusals.length === 0) failures.push(`${op} / ${name}: ran although it is not supported`);
  const isRefusal = (failure: string): boolean => failure.includes(': threw UnsupportedOpError');
  failures.push(...refusals.filter((failure) => !isRefusal(failure)));
  failures.push(...(await checkKernelCase(backend, kernelCase, { ...options, allowFallback: true })));
  return failures;
}
