/** The WebAssembly backend: its memory, its threads and its executables. */
import type { Backend, BufferHandle, BufferUsage, Executable, Program } from '@winnow/ops';
import { ArgumentError, BackendError, ReleasedError } from '@winnow/tensor';
import { workersOnly } from './caller-share.js';
import { createExecutable } from './executable.js';
import { createHeap } from './heap.js';
import type { WasmHost } from './host.js';
import { controlWords, maxThreads, pageBytes } from './layout.js';
import { createLocalRunner } from './local-runner.js';
import { packingSteps, runPackingAlone, writePackingJob, type PackedTensor } from './packing.js';
import type { Job } from './runner.js';
import { supportOf } from './support.js';
import { canShareMemory, compileKernels, supportsRelaxedSimd, type Variant } from './web-assembly.js';
import { createWorkerRunner } from './worker-runner.js';

export interface WasmBackendOptions {
  /** Workers to compute on. Default: as many as the machine runs at a time. */
  readonly numThreads?: number;
  /** Where workers come from. */
  readonly host: WasmHost;
  /** Whether to use relaxed SIMD. Default `'auto'`: where the engine has it. */
  readonly relaxedSimd?: 'auto' | boolean;
  /**
   * Whether to share the memory with workers. Default `'auto'`: where the page may. Without, everything runs on the calling
   * thread, with a turn for its event loop between ops.
   */
  readonly sharedMemory?: 'auto' | boolean;
  /** Most memory for weights, caches and activations together. Default 4 GiB shared, else 1 GiB. */
  readonly maxMemoryBytes?: number;
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
  /** Bytes of buffers and executables in use. */
  readonly usedBytes: number;
}

interface WasmBuffer extends BufferHandle {
  readonly owner: object;
  address: number | undefined;
  /** Weights in it whose rows are interleaved at present. */
  packed: readonly PackedTensor[];
}

const gibibyte = 2 ** 30;
/**
 * How often a thread looks for the others before it goes to sleep. Waking it takes some ten microseconds, so it waits about
 * 0.1 ms, unless it takes the core away that another thread needs.
 */
const manySpins = 100_000;
const fewSpins = 1000;

/**
 * Creates the backend: compiles the kernels and starts the workers.
 * @throws {ArgumentError} for options that make no sense
 * @throws {BackendError} when the engine lacks what an option demands
 */
export async function createBackend(options: WasmBackendOptions): Promise<WasmBackend> {
  const { host } = options;
  const isShared = options.sharedMemory === 'auto' ? canShareMemory() : (options.sharedMemory ?? canShareMemory());
  const maxBytes = options.maxMemoryBytes ?? (isShared ? 4 : 1) * gibibyte;
  const relaxed = options.relaxedSimd ?? 'auto';
  const variant: Variant = (relaxed === 'auto' ? supportsRelaxedSimd() : relaxed) ? 'relaxed-simd' : 'simd';
  const numThreads = isShared ? (options.numThreads ?? Math.min(maxThreads, host.availableParallelism)) : 1;
  check('numThreads', numThreads, 1, maxThreads);
  const activations = options.activations ?? 'int8';
  if (activations !== 'int8' && activations !== 'f32') {
    throw new ArgumentError({ argument: 'activations', expected: 'f32 | int8', actual: String(activations) });
  }
  check('maxMemoryBytes', maxBytes, 4 * pageBytes, 4 * gibibyte);
  if (variant === 'relaxed-simd' && !supportsRelaxedSimd()) {
    throw new BackendError({ backend: 'wasm', message: 'this engine has no relaxed SIMD' });
  }
  const maxCallerMs = options.maxCallerMs ?? (options.minSharedWork === 0 ? 0 : 2);
  const module = await compileKernels(variant, isShared);
  const heap = createHeap(maxBytes, isShared);
  heap.words(controlWords.minWork, 1)[0] = options.minSharedWork ?? 30_000;
  heap.words(controlWords.spins, 1)[0] = numThreads > host.availableParallelism ? fewSpins : manySpins;
  const runner = isShared
    ? createWorkerRunner(module, heap.memory, host, numThreads, options.usesMessages ?? false)
    : createLocalRunner(module, heap.memory, host);

  const identity = {};
  const buffers = new Set<WasmBuffer>();
  const executables = new Set<Executable>();
  let isDisposed = false;
  let turn: Promise<unknown> = Promise.resolve();
  let numJobs = 0; // running and waiting
  let toFree: number[] = [];
  let runningJob: number | undefined; // address of its job block

  function checkDisposed(): void {
    if (isDisposed) throw new ReleasedError('wasm backend');
  }

  function bufferOf(handle: BufferHandle): WasmBuffer {
    checkDisposed();
    const buffer = handle as WasmBuffer;
    if (buffer.owner !== identity) {
      throw new BackendError({ backend: 'wasm', message: 'the buffer belongs to another backend' });
    }
    if (buffer.address === undefined) throw new ReleasedError('wasm buffer');
    return buffer;
  }

  function rangeOf(handle: BufferHandle, byteOffset: number, length: number): Uint8Array {
    const buffer = bufferOf(handle);
    const { address, sizeBytes } = buffer;
    if (!Number.isSafeInteger(byteOffset) || byteOffset < 0 || byteOffset + length > sizeBytes) {
      throw new ArgumentError({
        argument: 'byte range',
        expected: `a range inside ${sizeBytes} bytes`,
        actual: `[${byteOffset}, ${byteOffset + length})`,
      });
    }
    unpack(buffer);
    return heap.bytes((address as number) + byteOffset, length);
  }

  /** Gives a buffer the bytes back that were written to it. */
  function unpack(buffer: WasmBuffer): void {
    if (buffer.packed.length === 0) return;
    if (numJobs > 0) throw new BackendError({ backend: 'wasm', message: 'the weights are in use by a run' });
    const steps = buffer.packed.map((tensor) => ({ tensor, address: buffer.address as number, isPacking: false }));
    runPackingAlone(steps, heap, module, host.now);
    buffer.packed = [];
  }

  /** Memory that a job may still use is freed after it. */
  function release(address: number): void {
    if (numJobs > 0) toFree.push(address);
    else heap.free(address);
  }

  /** The end of a job, for memory that waits for it. */
  function endJob(): void {
    numJobs--;
    if (numJobs > 0) return;
    for (const region of toFree) heap.free(region);
    toFree = [];
  }

  async function runJob(job: Job, signal: AbortSignal | undefined, checkAlive: () => void): Promise<boolean> {
    if (numJobs > 0) await turn.catch(() => undefined);
    checkAlive();
    signal?.throwIfAborted();
    runningJob = job.address;
    const cancel = (): void => runner.cancel();
    signal?.addEventListener('abort', cancel);
    try {
      return await runner.run(job);
    } catch (error) {
      checkDisposed(); // workers that were told to leave did not die
      throw error;
    } finally {
      runningJob = undefined;
      signal?.removeEventListener('abort', cancel);
    }
  }

  /** Runs a job, at once when it is short and no other one is there, else in its turn. */
  function runRecords(job: Job, signal: AbortSignal | undefined, checkAlive: () => void): boolean | Promise<boolean> {
    if (job.share.isShort && numJobs === 0) return runner.run(job);
    const result = runJob(job, signal, checkAlive).finally(endJob);
    numJobs++;
    turn = result;
    return result;
  }

  const backend: WasmBackend = {
    name: 'wasm',
    variant,
    numThreads,
    get usedBytes() {
      return heap.usedBytes;
    },
    supports: supportOf,
    allocate({ sizeBytes, usage, label }): BufferHandle {
      checkDisposed();
      if (!Number.isSafeInteger(sizeBytes) || sizeBytes < 0) {
        throw new ArgumentError({ argument: `bytes of ${label}`, expected: '0 or more', actual: String(sizeBytes) });
      }
      const address = heap.allocate(sizeBytes, label);
      const buffer: WasmBuffer = { sizeBytes, usage, owner: identity, address, packed: [] };
      buffers.add(buffer);
      return buffer;
    },
    view(handle): Uint8Array {
      return rangeOf(handle, 0, handle.sizeBytes);
    },
    async write(handle, byteOffset, bytes): Promise<void> {
      rangeOf(handle, byteOffset, bytes.length).set(bytes);
    },
    async read(handle, byteOffset, target): Promise<void> {
      target.set(rangeOf(handle, byteOffset, target.length));
    },
    free(handle): void {
      const buffer = bufferOf(handle);
      release(buffer.address as number);
      buffer.address = undefined;
      buffers.delete(buffer);
    },
    async prepare(program: Program, prepareOptions): Promise<Executable> {
      checkDisposed();
      prepareOptions.signal?.throwIfAborted();
      const bound = bind(program, prepareOptions.buffers, bufferOf);
      const all = [...bound.values()];
      let known: (readonly PackedTensor[])[] = []; // what was packed where when this program last looked
      const executable = await createExecutable(program, {
        heap,
        numThreads,
        addressOf: (buffer) => (bound.get(buffer) as WasmBuffer).address as number,
        checkMemory() {
          checkDisposed();
          for (const buffer of bound.values()) bufferOf(buffer);
        },
        runRecords,
        isPacked: () => known.length > 0 && all.every(({ packed }, index) => packed === known[index]),
        async pack(tensors, checkAlive) {
          const runSteps = async (steps: ReturnType<typeof packingSteps>): Promise<typeof steps> => {
            if (steps.length === 0) return [];
            const job = writePackingJob(steps, heap, numThreads);
            try {
              const { address } = job;
              await runRecords({ address, begin: 0, end: steps.length, share: workersOnly }, undefined, checkAlive);
              return job.finish();
            } finally {
              release(job.region);
            }
          };
          const refused = await runSteps(packingSteps(tensors, bound));
          known = all.map(({ packed }) => packed);
          return refused.map(({ tensor }) => tensor);
        },
        maxCallerMs,
        packs: activations === 'int8',
        cancel(address) {
          if (runningJob === address) runner.cancel();
        },
        now: host.now,
        release,
        onDispose: (disposed) => executables.delete(disposed),
        profile: prepareOptions.profile ?? false,
        onUnsupported: prepareOptions.onUnsupported ?? 'fallback',
      });
      executables.add(executable);
      return executable;
    },
    async dispose(): Promise<void> {
      if (isDisposed) return;
      isDisposed = true;
      for (const executable of executables) await executable.dispose();
      for (const buffer of buffers) buffer.address = undefined;
      buffers.clear();
      await runner.dispose();
    },
  };
  return backend;
}

function check(argument: string, value: number, min: number, max: number): void {
  if (Number.isSafeInteger(value) && value >= min && value <= max) return;
  throw new ArgumentError({ argument, expected: `an integer from ${min} to ${max}`, actual: String(value) });
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
