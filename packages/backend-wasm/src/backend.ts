/** The WebAssembly backend: its memory, its threads and its executables. */
import {
  checkCopy,
  dispatchProgram,
  type Backend,
  type BufferHandle,
  type BufferUsage,
  type Executable,
  type KernelBackend,
  type PrepareOptions,
  type Program,
} from '@winnow/ops';
import { ArgumentError, BackendError, ReleasedError, type DeviceLostError } from '@winnow/tensor';
import { breakEvenRatio } from './break-even.js';
import { makeCurrent, setWritten, type BufferPlace, type WasmBuffer } from './buffer-places.js';
import { checkChoice, checkInteger, checkMilliseconds } from './check-options.js';
import { createExecutable } from './executable.js';
import type { WasmHost } from './host.js';
import { createJobQueue } from './job-queue.js';
import { heapBase, maxThreads, pageBytes } from './layout.generated.js';
import { createMemoryPool } from './memory-pool.js';
import { runPackingAlone } from './packing.js';
import { ScratchMeter } from './scratch-meter.js';
import { supportOf } from './support.js';
import { canShareMemory, compileKernels, supportsRelaxedSimd, type Variant } from './web-assembly.js';

export interface WasmBackendOptions {
  /** Workers to compute on. Default: as many as the machine runs at a time. */
  readonly numThreads?: number;
  /** Where workers come from. */
  readonly host: WasmHost;
  /** Whether to use relaxed SIMD. Default `'auto'`: where the engine has it. */
  readonly relaxedSimd?: 'auto' | boolean;
  /**
   * Which int8 dot product kernels use with relaxed SIMD: `'maddubs'` sums pairs of products to 16 bits, which suits processors
   * without a four-way dot product (SSE, AVX2); `'generic'` works everywhere. The results are the same. Default `'auto'`: the
   * fastest on this machine. Without relaxed SIMD the option has no effect.
   */
  readonly int8Dot?: 'auto' | 'maddubs' | 'generic';
  /**
   * Whether to share the memory with workers. Default `'auto'`: where the page may. Without, everything runs on the calling
   * thread, with a turn for its event loop between ops.
   */
  readonly sharedMemory?: 'auto' | boolean;
  /**
   * Most memory for weights, caches and activations together. Default: as much as the machine has, from 4 to 64 GiB, where
   * memory is shared, else 1 GiB.
   */
  readonly maxMemoryBytes?: number;
  /**
   * Size that one WebAssembly memory may grow to, 4 GiB at most. What does not fit into one is spread over several, each with
   * threads of its own. Default 4 GiB.
   */
  readonly bytesPerMemory?: number;
  /**
   * What weights and caches leave free in each memory for the activations of programs, where there may be several memories.
   * Default an eighth of `bytesPerMemory`.
   */
  readonly reservedBytes?: number;
  /**
   * How products with block-quantised weights take their activations: `'f32'` exactly, or `'int8'` as 8-bit integers per
   * block of 32 for q8_0, q4_0, q4_K, q5_K and q6_K, which is faster. Products with f32, f16 and bf16 weights are always
   * in f32. Default `'int8'`.
   */
  readonly activations?: 'f32' | 'int8';
  /** Have workers post a message per job even where `Atomics.waitAsync` exists. Default false. */
  readonly usesMessages?: boolean;
  /** Rough number of multiply-adds below which an op runs on one thread. Default 30,000; 0 shares every op, on workers. */
  readonly minSharedWork?: number;
  /**
   * Programs that take no longer than this many milliseconds on one thread run on the calling thread, which spares the
   * way to the workers and back. Default 2, or 0 where all ops are shared; 0 leaves everything to the workers.
   */
  readonly maxCallerMs?: number;
}

/** What a backend of this package tells about itself. */
export interface WasmBackend extends Backend {
  readonly variant: Variant;
  readonly numThreads: number;
  /** WebAssembly memories at present. */
  readonly numMemories: number;
  /** Bytes of buffers and executables in use. */
  readonly usedBytes: number;
}

const gibibyte = 2 ** 30;
/** The most that addresses of 32 bits reach. */
const largestMemory = 4 * gibibyte;
/** Bounds of the default of `maxMemoryBytes`. */
const [fewBytes, manyBytes, unknownBytes] = [4 * gibibyte, 64 * gibibyte, 16 * gibibyte];
/** What a buffer takes beyond its bytes, at most: see `region-allocator.ts`. */
const bufferSlack = 128;
/** `copy` takes any bytes. */
const copyAlignment = 1;
/** Weights below this part of a memory are copied to where they are needed. */
const smallShare = 1024;

/**
 * Creates the backend: compiles the kernels and starts the workers.
 * @throws {ArgumentError} for options that make no sense
 * @throws {BackendError} when the engine lacks what an option demands
 */
export async function createBackend(options: WasmBackendOptions): Promise<WasmBackend> {
  const { host } = options;
  checkChoice('sharedMemory', options.sharedMemory ?? 'auto', ['auto', true, false]);
  checkChoice('relaxedSimd', options.relaxedSimd ?? 'auto', ['auto', true, false]);
  const isShared = options.sharedMemory === 'auto' ? canShareMemory() : (options.sharedMemory ?? canShareMemory());
  const machineBytes = Math.min(manyBytes, Math.max(fewBytes, host.totalMemoryBytes ?? unknownBytes));
  const maxBytes = options.maxMemoryBytes ?? (isShared ? machineBytes : gibibyte);
  const bytesPerMemory = options.bytesPerMemory ?? largestMemory;
  const reservedBytes = options.reservedBytes ?? Math.floor(bytesPerMemory / 8);
  const relaxed = options.relaxedSimd ?? 'auto';
  const variant: Variant = (relaxed === 'auto' ? supportsRelaxedSimd() : relaxed) ? 'relaxed-simd' : 'simd';
  const int8Dot = options.int8Dot ?? 'auto';
  checkChoice('int8Dot', int8Dot, ['auto', 'maddubs', 'generic']);
  const askedThreads = options.numThreads ?? Math.min(maxThreads, host.availableParallelism);
  checkInteger('numThreads', askedThreads, 1, maxThreads);
  const numThreads = isShared ? askedThreads : 1;
  const activations = options.activations ?? 'int8';
  checkChoice('activations', activations, ['f32', 'int8']);
  checkInteger('maxMemoryBytes', maxBytes, 4 * pageBytes, 2 ** 40);
  checkInteger('bytesPerMemory', bytesPerMemory, 4 * pageBytes, largestMemory);
  checkInteger('reservedBytes', reservedBytes, 0, bytesPerMemory - 4 * pageBytes);
  const minWork = options.minSharedWork ?? 30_000;
  checkInteger('minSharedWork', minWork, 0, 2 ** 31 - 1);
  const maxCallerMs = options.maxCallerMs ?? (minWork === 0 ? 0 : 2);
  checkMilliseconds('maxCallerMs', maxCallerMs);
  if (variant === 'relaxed-simd' && !supportsRelaxedSimd()) {
    throw new BackendError({ backend: 'wasm', message: 'this engine has no relaxed SIMD' });
  }
  const module = await compileKernels(variant, isShared);
  const scratchMeter = new ScratchMeter(module, isShared);
  const usesMessages = options.usesMessages ?? false;
  const shared = { module, host, isShared, numThreads, usesMessages, minWork, int8Dot };
  let onLost: (failure: DeviceLostError) => void = () => undefined;
  const lost = new Promise<DeviceLostError>((resolve) => (onLost = resolve));
  const pool = createMemoryPool({ ...shared, maxBytes, bytesPerMemory, reservedBytes, onLost });

  const identity = {};
  const buffers = new Set<WasmBuffer>();
  const executables = new Set<Executable>();
  let isDisposed = false;
  const queue = createJobQueue(checkDisposed);

  function checkDisposed(): void {
    if (isDisposed) throw new ReleasedError('wasm backend');
  }

  function bufferOf(handle: BufferHandle): WasmBuffer {
    checkDisposed();
    const buffer = handle as WasmBuffer;
    if (buffer.owner !== identity) {
      throw new BackendError({ backend: 'wasm', message: 'the buffer belongs to another backend' });
    }
    if (buffer.places.length === 0) throw new ReleasedError('wasm buffer');
    return buffer;
  }

  function checkRange({ sizeBytes }: BufferHandle, byteOffset: number, length: number): void {
    const isRange = [byteOffset, length].every((value) => Number.isSafeInteger(value) && value >= 0);
    if (isRange && byteOffset + length <= sizeBytes) return;
    throw new ArgumentError({
      argument: 'byte range',
      expected: `a range inside ${sizeBytes} bytes`,
      actual: `[${byteOffset}, ${byteOffset + length})`,
    });
  }

  /** Bytes of a buffer as they were written, in its home. */
  function rangeOf(handle: BufferHandle, byteOffset: number, length: number, isWritten: boolean): Uint8Array {
    const buffer = bufferOf(handle);
    checkRange(buffer, byteOffset, length);
    const [home] = buffer.places as readonly [BufferPlace];
    if (queue.isBusy && !home.isCurrent) {
      throw new BackendError({ backend: 'wasm', message: 'the buffer is in use by a run' });
    }
    if (queue.isBusy && home.packed.length > 0) {
      throw new BackendError({ backend: 'wasm', message: 'the weights are in use by a run' });
    }
    return contentOf(buffer, byteOffset, length, isWritten);
  }

  /** The same, while no job runs. */
  function contentOf(buffer: WasmBuffer, byteOffset: number, length: number, isWritten: boolean): Uint8Array {
    const [home] = buffer.places as readonly [BufferPlace];
    makeCurrent(buffer, home);
    unpack(home);
    if (isWritten && buffer.places.length > 1) setWritten(buffer, home);
    return home.memory.heap.bytes(home.address + byteOffset, length);
  }

  /** Gives a buffer the bytes back that were written to it. */
  function unpack(place: BufferPlace): void {
    if (place.packed.length === 0) return;
    const steps = place.packed.map((tensor) => ({ tensor, address: place.address, isPacking: false }));
    runPackingAlone(steps, place.memory.heap, module, host.now);
    place.packed = [];
  }

  async function prepareKernels(program: Program, prepareOptions: PrepareOptions): Promise<Executable> {
    checkDisposed();
    prepareOptions.signal?.throwIfAborted();
    const bound = bind(program, prepareOptions.buffers, bufferOf);
    const executable = await createExecutable(program, {
      scratchMeter,
      ...{ pool, queue, numThreads, bound, maxCallerMs },
      hasCopies: () => pool.numMemories > 1,
      smallBytes: bytesPerMemory / smallShare,
      checkMemory() {
        checkDisposed();
        for (const buffer of bound.values()) bufferOf(buffer);
      },
      packs: activations === 'int8',
      now: host.now,
      onDispose: (disposed) => executables.delete(disposed),
      profile: prepareOptions.profile ?? false,
      hostBuffers: prepareOptions.hostBuffers ?? new Set(),
    });
    executables.add(executable);
    return executable;
  }

  const backend: WasmBackend = {
    name: 'wasm',
    variant,
    numThreads,
    get usedBytes() {
      return pool.usedBytes;
    },
    get numMemories() {
      return pool.numMemories;
    },
    limits: {
      maxBufferBytes: Math.floor(Math.min(maxBytes, bytesPerMemory) / pageBytes) * pageBytes - heapBase - bufferSlack,
      maxTotalBytes: maxBytes,
      copyAlignment,
      maxThreads: numThreads,
    },
    lost,
    supports: supportOf,
    breakEvenRatio,
    allocate({ sizeBytes, usage, label, group }): BufferHandle {
      checkDisposed();
      if (!Number.isSafeInteger(sizeBytes) || sizeBytes < 0) {
        throw new ArgumentError({ argument: `bytes of ${label}`, expected: '0 or more', actual: String(sizeBytes) });
      }
      const home: BufferPlace = { ...pool.place(sizeBytes, label, group), isCurrent: true, packed: [] };
      const buffer: WasmBuffer = { sizeBytes, usage, owner: identity, label, places: [home] };
      buffers.add(buffer);
      return buffer;
    },
    view(handle): Uint8Array {
      return rangeOf(handle, 0, handle.sizeBytes, true);
    },
    async write(handle, byteOffset, bytes): Promise<void> {
      rangeOf(handle, byteOffset, bytes.length, true).set(bytes);
    },
    async read(handle, byteOffset, target): Promise<void> {
      target.set(rangeOf(handle, byteOffset, target.length, false));
    },
    async copy(from, fromOffset, to, toOffset, sizeBytes): Promise<void> {
      checkRange(bufferOf(from), fromOffset, sizeBytes);
      checkRange(bufferOf(to), toOffset, sizeBytes);
      checkCopy({ from, fromOffset, to, toOffset, sizeBytes }, copyAlignment);
      const copyBytes = (): void => {
        const target = contentOf(bufferOf(to), toOffset, sizeBytes, true); // either may be freed while the copy waits
        target.set(contentOf(bufferOf(from), fromOffset, sizeBytes, false));
      };
      if (queue.isBusy) await queue.takeTurn(copyBytes, checkDisposed);
      else copyBytes();
    },
    free(handle): void {
      const buffer = bufferOf(handle);
      for (const { memory, address } of buffer.places) queue.whenIdle(() => pool.free(memory, address));
      buffer.places = [];
      buffers.delete(buffer);
    },
    prepare: (program, prepareOptions) => dispatchProgram(kernels, program, prepareOptions),
    async dispose(): Promise<void> {
      if (isDisposed) return;
      isDisposed = true;
      for (const executable of executables) await executable.dispose();
      for (const buffer of buffers) buffer.places = [];
      buffers.clear();
      await pool.dispose();
    },
  };
  const kernels: KernelBackend = { ...backend, prepareKernels, now: host.now };
  return backend;
}

/** The memory of weights and caches by index. */
function bind(
  program: Program,
  handles: ReadonlyMap<string, BufferHandle>,
  bufferOf: (handle: BufferHandle) => WasmBuffer,
): Map<number, WasmBuffer> {
  const bound = new Map<number, WasmBuffer>();
  const external: readonly BufferUsage[] = ['weights', 'kv'];
  for (const [index, { name, usage, sizeBytes }] of program.buffers.entries()) {
    if (!external.includes(usage)) continue;
    const handle = handles.get(name);
    if (handle === undefined || handle.sizeBytes < sizeBytes) {
      throw new ArgumentError({
        argument: `buffer ${name}`,
        expected: `${sizeBytes} bytes`,
        actual: handle === undefined ? 'no handle' : `${handle.sizeBytes} bytes`,
      });
    }
    bound.set(index, bufferOf(handle));
  }
  return bound;
}
