/** The WebAssembly backend: its memory, its threads and its executables. */
import { createHost } from '#host';
import type { NativeLevel } from '@winnow/native';
import { dispatchProgram, type Backend, type Executable, type KernelBackend } from '@winnow/ops';
import { checkOptions, ReleasedError, type DeviceLostError } from '@winnow/tensor';
import { compileKernels, type Kernels, type Variant } from '../host/web-assembly.js';
import { heapBase, pageBytes } from '../kernels/layout.generated.js';
import { supportOf } from '../kernels/support.js';
import { BufferStore, copyAlignment } from '../memory/buffer-store.js';
import { MemoryPool, type CreateMemory } from '../memory/memory-pool.js';
import { createShard } from '../memory/memory-shard.js';
import { createExecutable } from '../program/executable.js';
import { ScratchMeter } from '../program/scratch-meter.js';
import { JobQueue } from '../runner/job-queue.js';
import {
  resolveOptions,
  wasmBackendNames,
  type CreateWasmBackendOptions,
  type ResolvedOptions,
} from './backend-options.js';
import { breakEvenRatioOf } from './break-even.js';

/** The WASM backend, with its memory statistics. */
export interface WasmBackend extends Backend {
  readonly variant: Variant;
  readonly numThreads: number;
  readonly notices: readonly string[];
  /** Instruction set of the native kernels, if there are any. */
  readonly nativeLevel: NativeLevel | undefined;
  /** Number of records that native kernels have computed in the current memories. */
  readonly numNativeRecords: number;
  /** Current number of WebAssembly memories. */
  readonly numMemories: number;
  /** Bytes of buffers and executables in use. */
  readonly usedBytes: number;
}

/** Maximum overhead of a buffer: see `region-allocator.ts`. */
const bufferSlack = 128;
/** Weights smaller than this fraction of a memory are copied to where they are needed. */
const smallShare = 1024;

const unattachedNotice = 'native kernels: a thread cannot attach them, so WebAssembly computes everything';
const shortNotice = 'native kernels: the memory has no room for their scratch, so WebAssembly computes some programs';

/**
 * Creates the WebAssembly backend: compiles the kernels and starts the workers.
 * @throws {ArgumentError} for invalid options
 * @throws {BackendError} when the JavaScript engine lacks a required feature
 */
export async function createWasmBackend(options: CreateWasmBackendOptions = {}): Promise<WasmBackend> {
  checkOptions(options, wasmBackendNames);
  const resolved = await resolveOptions(options, options.host ?? createHost());
  const { variant, isShared, numThreads, notices, maxBytes, bytesPerMemory, native } = resolved;
  const compiled = { module: await compileKernels(variant, isShared), native };
  const parts = new BackendParts(resolved, compiled, (size, onDeath) => createShard(size, compiled, resolved, onDeath));
  const { pool, buffers } = parts;
  const backend: WasmBackend = {
    name: native === undefined ? 'wasm' : `wasm+${native.level}`,
    variant,
    numThreads,
    get notices() {
      return [...notices, ...parts.nativeNotices];
    },
    get usedBytes() {
      return pool.usedBytes;
    },
    nativeLevel: native?.level,
    isBatchInvariant: true,
    get numNativeRecords() {
      return pool.numNativeRecords;
    },
    get numMemories() {
      return pool.numMemories;
    },
    limits: {
      maxBufferBytes: Math.floor(Math.min(maxBytes, bytesPerMemory) / pageBytes) * pageBytes - heapBase - bufferSlack,
      maxTotalBytes: maxBytes,
      copyAlignment,
    },
    lost: parts.lost,
    supports: supportOf,
    breakEvenRatio: breakEvenRatioOf(native === undefined ? 'wasm' : 'native'),
    allocate: (description) => buffers.allocate(description),
    view: (handle) => buffers.rangeOf(handle, 0, handle.sizeBytes, true),
    async write(handle, byteOffset, bytes) {
      buffers.rangeOf(handle, byteOffset, bytes.length, true).set(bytes);
    },
    async read(handle, byteOffset, target) {
      target.set(buffers.rangeOf(handle, byteOffset, target.length, false));
    },
    copy: (from, fromOffset, to, toOffset, sizeBytes) => buffers.copy(from, fromOffset, to, toOffset, sizeBytes),
    free: (handle) => buffers.free(handle),
    prepare: (program, prepareOptions) => dispatchProgram(kernels, program, prepareOptions),
    dispose: () => parts.dispose(),
  };
  const kernels: KernelBackend = { ...backend, prepareKernels: parts.prepare, now: resolved.host.now };
  return backend;
}

/** The parts of a backend and its executables. */
class BackendParts {
  readonly pool: MemoryPool;
  readonly buffers: BufferStore;
  readonly lost: Promise<DeviceLostError>;
  readonly #options: ResolvedOptions;
  readonly #queue: JobQueue;
  readonly #scratchMeter: ScratchMeter;
  readonly #executables = new Set<Executable>();
  #isShort = false;
  #isDisposed = false;

  constructor(options: ResolvedOptions, kernels: Kernels, createMemory: CreateMemory) {
    const { now } = options.host;
    const checkDisposed = (): void => this.#checkDisposed();
    let onLost: (failure: DeviceLostError) => void = () => undefined;
    this.lost = new Promise((resolve) => (onLost = resolve));
    this.#options = options;
    this.#queue = new JobQueue(checkDisposed);
    this.#scratchMeter = new ScratchMeter(kernels, options.isShared);
    this.pool = new MemoryPool(options, createMemory, onLost);
    this.buffers = new BufferStore({ pool: this.pool, queue: this.#queue, module: kernels.module, now, checkDisposed });
  }

  /** Why WebAssembly computes records that have native kernels. */
  get nativeNotices(): readonly string[] {
    if (this.#options.native === undefined) return [];
    if (!this.#scratchMeter.hasNative || this.pool.isNativeOff) return [unattachedNotice];
    return this.#isShort ? [shortNotice] : [];
  }

  readonly prepare: KernelBackend['prepareKernels'] = async (program, options) => {
    this.#checkDisposed();
    options.signal?.throwIfAborted();
    const { maxCallerMs, bytesPerMemory, activations, host, native } = this.#options;
    const bound = this.buffers.bind(program, options.buffers);
    const executable = await createExecutable(program, {
      ...{ pool: this.pool, queue: this.#queue, scratchMeter: this.#scratchMeter, bound, maxCallerMs },
      hasCopies: () => this.pool.numMemories > 1,
      smallBytes: bytesPerMemory / smallShare,
      checkMemory: () => {
        this.#checkDisposed();
        for (const buffer of bound.values()) this.buffers.bufferOf(buffer);
      },
      usesInt8: activations === 'int8',
      isInvariant: options.batchInvariant ?? false,
      now: host.now,
      onNativeShortage: () => (this.#isShort = true),
      enterNative: () => native?.enter() ?? (() => undefined),
      onDispose: (disposed) => this.#executables.delete(disposed),
      profile: options.profile ?? false,
      hostBuffers: options.hostBuffers ?? new Set(),
    });
    this.#executables.add(executable);
    return executable;
  };

  async dispose(): Promise<void> {
    if (this.#isDisposed) return;
    this.#isDisposed = true;
    for (const executable of this.#executables) await executable.dispose();
    this.buffers.clear();
    await this.pool.dispose();
  }

  #checkDisposed(): void {
    if (this.#isDisposed) throw new ReleasedError('wasm backend');
  }
}
