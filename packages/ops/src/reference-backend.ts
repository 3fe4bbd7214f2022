/** The reference backend: every op by its plain TypeScript definition, one after the other, on one thread. */
import { ArgumentError, BackendError, CapacityError, ReleasedError } from '@winnow/tensor';
import type { Backend, BufferHandle, Executable, PrepareOptions, Support } from './backend.js';
import { createReferenceExecutable } from './reference-executable.js';
import { opSpecs } from './registry.js';
import type { Program } from './program.js';

export interface ReferenceBackendOptions {
  /** Milliseconds of any origin, to know when to let the host run. Default `performance.now`. */
  readonly now?: () => number;
  /** Lets the host's event loop run. Default: a zero timer. */
  readonly yieldToHost?: () => Promise<void>;
}

/** Memory of the reference backend. */
export interface ReferenceBuffer extends BufferHandle {
  bytes: Uint8Array | undefined;
  readonly owner: object;
}

interface Host {
  readonly performance: { now(): number };
  setTimeout(callback: () => void, delayMs: number): unknown;
}
const host = globalThis as unknown as Host;

/** Creates the backend. It supports every op. */
export function createReferenceBackend(options: ReferenceBackendOptions = {}): Backend {
  const now = options.now ?? ((): number => host.performance.now());
  const yieldToHost =
    options.yieldToHost ?? ((): Promise<void> => new Promise((resolve) => host.setTimeout(resolve, 0)));
  const identity = {};
  const buffers = new Set<ReferenceBuffer>();
  const executables = new Set<Executable>();
  let isDisposed = false;

  function bytesOf(handle: BufferHandle): Uint8Array {
    if (isDisposed) throw new ReleasedError('reference backend');
    const buffer = handle as ReferenceBuffer;
    if (buffer.owner !== identity) {
      throw new BackendError({ backend: 'reference', message: 'the buffer belongs to another backend' });
    }
    if (buffer.bytes === undefined) throw new ReleasedError('reference buffer');
    return buffer.bytes;
  }

  function rangeOf(handle: BufferHandle, byteOffset: number, length: number): Uint8Array {
    const bytes = bytesOf(handle);
    if (!Number.isSafeInteger(byteOffset) || byteOffset < 0 || byteOffset + length > bytes.length) {
      throw new ArgumentError({
        argument: 'byte range',
        expected: `a range inside ${bytes.length} bytes`,
        actual: `[${byteOffset}, ${byteOffset + length})`,
      });
    }
    return bytes.subarray(byteOffset, byteOffset + length);
  }

  return {
    name: 'reference',
    supports(op, { dtypes }): Support {
      const spec = opSpecs.find(({ name }) => name === op);
      if (spec === undefined) return { supported: false, reason: 'no such op' };
      for (const [name, dtype] of Object.entries(dtypes)) {
        const allowed = spec.inputs[name]?.dtypes ?? spec.outputs[name]?.dtypes ?? [];
        if (!allowed.includes(dtype)) return { supported: false, reason: `${name} cannot be ${dtype}` };
      }
      return { supported: true };
    },
    allocate({ sizeBytes, usage, label }): BufferHandle {
      if (isDisposed) throw new ReleasedError('reference backend');
      if (!Number.isSafeInteger(sizeBytes) || sizeBytes < 0) {
        throw new ArgumentError({ argument: `bytes of ${label}`, expected: '0 or more', actual: String(sizeBytes) });
      }
      const buffer: ReferenceBuffer = { sizeBytes, usage, owner: identity, bytes: allocateBytes(sizeBytes, label) };
      buffers.add(buffer);
      return buffer;
    },
    view: bytesOf,
    async write(handle, byteOffset, bytes): Promise<void> {
      rangeOf(handle, byteOffset, bytes.length).set(bytes);
    },
    async read(handle, byteOffset, target): Promise<void> {
      target.set(rangeOf(handle, byteOffset, target.length));
    },
    free(handle): void {
      bytesOf(handle);
      (handle as ReferenceBuffer).bytes = undefined;
      buffers.delete(handle as ReferenceBuffer);
    },
    async prepare(program: Program, prepareOptions: PrepareOptions): Promise<Executable> {
      if (isDisposed) throw new ReleasedError('reference backend');
      prepareOptions.signal?.throwIfAborted();
      const memory = program.buffers.map((buffer) => memoryOf(buffer, prepareOptions.buffers, bytesOf));
      const bound = program.buffers.flatMap(({ name }) => prepareOptions.buffers.get(name) ?? []);
      const executable = createReferenceExecutable(program, memory, {
        now,
        yieldToHost,
        profile: prepareOptions.profile ?? false,
        checkMemory: () => bound.forEach(bytesOf),
        onDispose: () => executables.delete(executable),
      });
      executables.add(executable);
      return executable;
    },
    async dispose(): Promise<void> {
      isDisposed = true;
      for (const executable of executables) await executable.dispose();
      for (const buffer of buffers) buffer.bytes = undefined;
      buffers.clear();
    },
  };
}

/** @throws {CapacityError} when the host has not that much memory */
export function allocateBytes(sizeBytes: number, label: string): Uint8Array {
  try {
    return new Uint8Array(new ArrayBuffer(sizeBytes));
  } catch {
    throw new CapacityError({ resource: label, needed: sizeBytes, available: 0, unit: 'bytes' });
  }
}

/** Own memory for scalars and activations, the bound handle for everything else. */
function memoryOf(
  buffer: Program['buffers'][number],
  bound: ReadonlyMap<string, BufferHandle>,
  bytesOf: (handle: BufferHandle) => Uint8Array,
): Uint8Array {
  if (buffer.usage === 'scalars' || buffer.usage === 'activation') return allocateBytes(buffer.sizeBytes, buffer.name);
  const handle = bound.get(buffer.name);
  if (handle === undefined || handle.sizeBytes < buffer.sizeBytes) {
    throw new ArgumentError({
      argument: `buffer ${buffer.name}`,
      expected: `${buffer.sizeBytes} bytes`,
      actual: handle === undefined ? 'no handle' : `${handle.sizeBytes} bytes`,
    });
  }
  return bytesOf(handle);
}
