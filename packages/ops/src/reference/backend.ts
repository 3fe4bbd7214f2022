/** The reference backend: every op by its plain TypeScript definition, one after the other, on one thread. */
import { checkCopy, type Backend, type Executable, type OpDescription, type Support } from '../backend.js';
import { opSpecs } from '../registry.js';
import { createReferenceExecutable } from './executable.js';
import { ReferenceMemory } from './memory.js';

export interface ReferenceBackendOptions {
  /** Milliseconds of any origin, to know when to let the host run. Default `performance.now`. */
  readonly now?: () => number;
  /** Lets the host's event loop run. Default: a zero timer. */
  readonly yieldToHost?: () => Promise<void>;
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
  const memory = new ReferenceMemory();
  const executables = new Set<Executable>();
  return {
    name: 'reference',
    limits: { maxBufferBytes: Infinity, maxTotalBytes: Infinity, copyAlignment: 1 },
    lost: new Promise(() => undefined), // host memory stays
    supports,
    breakEvenRatio: () => 1, // rows are computed one by one: fewer rows always take less time
    allocate: (request) => memory.allocate(request),
    view: (handle) => memory.bytesOf(handle),
    async write(handle, byteOffset, bytes) {
      memory.rangeOf(handle, byteOffset, bytes.length).set(bytes);
    },
    async read(handle, byteOffset, target) {
      target.set(memory.rangeOf(handle, byteOffset, target.length));
    },
    async copy(from, fromOffset, to, toOffset, sizeBytes) {
      const source = memory.rangeOf(from, fromOffset, sizeBytes);
      const target = memory.rangeOf(to, toOffset, sizeBytes);
      checkCopy({ from, fromOffset, to, toOffset, sizeBytes }, 1);
      target.set(source);
    },
    free: (handle) => memory.free(handle),
    async prepare(program, { buffers, profile = false, signal }): Promise<Executable> {
      memory.checkDisposed();
      signal?.throwIfAborted();
      const bound = program.buffers.flatMap(({ name }) => buffers.get(name) ?? []);
      const checkMemory = (): void => bound.forEach((handle) => memory.bytesOf(handle));
      const onDispose = (): boolean => executables.delete(executable);
      const execution = { now, yieldToHost, profile, checkMemory, onDispose };
      const executable = createReferenceExecutable(program, memory.ofProgram(program, buffers), execution);
      executables.add(executable);
      return executable;
    },
    async dispose(): Promise<void> {
      memory.dispose();
      for (const executable of executables) await executable.dispose();
    },
  };
}

function supports(op: string, { dtypes }: OpDescription): Support {
  const spec = opSpecs.find(({ name }) => name === op);
  if (spec === undefined) return { supported: false, reason: 'no such op' };
  for (const [name, dtype] of Object.entries(dtypes)) {
    const allowed = spec.inputs[name]?.dtypes ?? spec.outputs[name]?.dtypes ?? [];
    if (!allowed.includes(dtype)) return { supported: false, reason: `${name} cannot be ${dtype}` };
  }
  return { supported: true };
}
