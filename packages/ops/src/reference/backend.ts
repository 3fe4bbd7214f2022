/** The reference backend: runs every op with its plain TypeScript definition, one after the other, on one thread. */
import {
  checkCopy,
  type Backend,
  type BackendLimits,
  type Executable,
  type OpDescription,
  type Support,
} from '../backend/backend.js';
import { opSpecs } from '../ops/registry.js';
import { createReferenceExecutable } from './executable.js';
import { ReferenceMemory } from './memory.js';
import { checkOptions, type OptionNames } from '@winnow/tensor';

export interface ReferenceBackendOptions {
  /** Milliseconds since any origin, to decide when to yield to the host. Default `performance.now`. */
  readonly now?: () => number;
  /** Yields to the host's event loop. Default: a zero timer. */
  readonly yieldToHost?: () => Promise<void>;
}

const referenceNames: OptionNames<ReferenceBackendOptions> = { now: true, yieldToHost: true };

interface Host {
  readonly performance: { now(): number };
  setTimeout(callback: () => void, delayMs: number): unknown;
}
const host = globalThis as unknown as Host;

/** Creates the backend. It supports every op. */
export function createReferenceBackend(options: ReferenceBackendOptions = {}): Backend {
  checkOptions(options, referenceNames);
  return new ReferenceBackend(options);
}

/** Its functions are properties, so that `{ ...backend, prepare }` is a backend, too. */
class ReferenceBackend implements Backend {
  readonly name = 'reference';
  readonly isBatchInvariant = true;
  readonly limits: BackendLimits = { maxBufferBytes: Infinity, maxTotalBytes: Infinity, copyAlignment: 1 };
  readonly lost: Promise<never> = new Promise(() => undefined); // host memory is never lost
  readonly supports = supports;
  readonly #now: () => number;
  readonly #yieldToHost: () => Promise<void>;
  readonly #memory = new ReferenceMemory();
  readonly #executables = new Set<Executable>();

  constructor({ now, yieldToHost }: ReferenceBackendOptions) {
    this.#now = now ?? ((): number => host.performance.now());
    this.#yieldToHost = yieldToHost ?? ((): Promise<void> => new Promise((resolve) => host.setTimeout(resolve, 0)));
  }

  /** Rows are computed one by one: fewer rows always take less time. */
  readonly breakEvenRatio: Backend['breakEvenRatio'] = () => 1;

  readonly allocate: Backend['allocate'] = (request) => this.#memory.allocate(request);

  readonly view: Backend['view'] = (handle) => this.#memory.bytesOf(handle);

  readonly write: Backend['write'] = async (handle, byteOffset, bytes) => {
    this.#memory.rangeOf(handle, byteOffset, bytes.length).set(bytes);
  };

  readonly read: Backend['read'] = async (handle, byteOffset, target) => {
    target.set(this.#memory.rangeOf(handle, byteOffset, target.length));
  };

  readonly copy: Backend['copy'] = async (from, fromOffset, to, toOffset, sizeBytes) => {
    const source = this.#memory.rangeOf(from, fromOffset, sizeBytes);
    const target = this.#memory.rangeOf(to, toOffset, sizeBytes);
    checkCopy({ from, fromOffset, to, toOffset, sizeBytes }, 1);
    target.set(source);
  };

  readonly free: Backend['free'] = (handle) => this.#memory.free(handle);

  readonly prepare: Backend['prepare'] = async (program, { buffers, profile = false, signal }) => {
    const memory = this.#memory;
    memory.checkDisposed();
    signal?.throwIfAborted();
    const bound = program.buffers.flatMap(({ name }) => buffers.get(name) ?? []);
    const executable: Executable = createReferenceExecutable(program, memory.ofProgram(program, buffers), {
      ...{ now: this.#now, yieldToHost: this.#yieldToHost, profile },
      checkMemory: () => bound.forEach((handle) => memory.bytesOf(handle)),
      onDispose: () => this.#executables.delete(executable),
    });
    this.#executables.add(executable);
    return executable;
  };

  readonly dispose: Backend['dispose'] = async () => {
    this.#memory.dispose();
    for (const executable of this.#executables) await executable.dispose();
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
