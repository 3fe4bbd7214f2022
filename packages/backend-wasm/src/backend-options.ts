/** Options of the backend: their defaults and what they may be. */
import { BackendError } from '@winnow/tensor';
import { checkChoice, checkInteger, checkMilliseconds } from './check-options.js';
import type { WasmHost } from './host.js';
import { maxThreads, pageBytes, type int8Dots } from './layout.generated.js';
import { canShareMemory, supportsRelaxedSimd, type Variant } from './web-assembly.js';

export interface WasmBackendOptions {
  /** Workers to compute on. Default: as many as the machine runs at a time. */
  readonly numThreads?: number | undefined;
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
   * How products with block-quantized weights take their activations: `'f32'` exactly, or `'int8'` as 8-bit integers per
   * block of 32 for q8_0, q4_0, q4_K, q5_K and q6_K, which is faster. Products with f32, f16 and bf16 weights are always
   * in f32. Default `'int8'`.
   */
  readonly activations?: 'f32' | 'int8' | undefined;
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

/** Options with every default filled in. */
export interface ResolvedOptions {
  readonly host: WasmHost;
  readonly variant: Variant;
  readonly int8Dot: keyof typeof int8Dots;
  readonly isShared: boolean;
  readonly numThreads: number;
  readonly maxBytes: number;
  readonly bytesPerMemory: number;
  readonly reservedBytes: number;
  readonly activations: 'f32' | 'int8';
  readonly usesMessages: boolean;
  readonly minWork: number;
  readonly maxCallerMs: number;
}

const gibibyte = 2 ** 30;
/** The most that addresses of 32 bits reach. */
const largestMemory = 4 * gibibyte;
/** Bounds of the default of `maxMemoryBytes`. */
const [fewBytes, manyBytes, unknownBytes] = [4 * gibibyte, 64 * gibibyte, 16 * gibibyte];

/**
 * @throws {ArgumentError} for options that make no sense
 * @throws {BackendError} when the engine lacks what an option demands
 */
export function resolveOptions(options: WasmBackendOptions): ResolvedOptions {
  const { host } = options;
  const sharedMemory = checkChoice('sharedMemory', options.sharedMemory ?? 'auto', ['auto', true, false]);
  const isShared = sharedMemory === 'auto' ? canShareMemory() : sharedMemory;
  const askedThreads = options.numThreads ?? Math.min(maxThreads, host.availableParallelism);
  checkInteger('numThreads', askedThreads, 1, maxThreads);
  const minWork = options.minSharedWork ?? 30_000;
  checkInteger('minSharedWork', minWork, 0, 2 ** 31 - 1);
  const maxCallerMs = options.maxCallerMs ?? (minWork === 0 ? 0 : 2);
  checkMilliseconds('maxCallerMs', maxCallerMs);
  return {
    host,
    ...kernelChoices(options),
    ...memorySizes(options, isShared),
    isShared,
    numThreads: isShared ? askedThreads : 1,
    usesMessages: options.usesMessages ?? false,
    ...{ minWork, maxCallerMs },
  };
}

function kernelChoices(options: WasmBackendOptions): Pick<ResolvedOptions, 'variant' | 'int8Dot' | 'activations'> {
  const relaxed = checkChoice('relaxedSimd', options.relaxedSimd ?? 'auto', ['auto', true, false]);
  const variant = (relaxed === 'auto' ? supportsRelaxedSimd() : relaxed) ? 'relaxed-simd' : 'simd';
  const int8Dot = checkChoice('int8Dot', options.int8Dot ?? 'auto', ['auto', 'maddubs', 'generic']);
  const activations = checkChoice('activations', options.activations ?? 'int8', ['f32', 'int8']);
  if (variant === 'relaxed-simd' && !supportsRelaxedSimd()) {
    throw new BackendError({ backend: 'wasm', message: 'this engine has no relaxed SIMD' });
  }
  return { variant, int8Dot, activations };
}

function memorySizes(
  { host, maxMemoryBytes, bytesPerMemory = largestMemory, reservedBytes }: WasmBackendOptions,
  isShared: boolean,
): Pick<ResolvedOptions, 'maxBytes' | 'bytesPerMemory' | 'reservedBytes'> {
  const machineBytes = Math.min(manyBytes, Math.max(fewBytes, host.totalMemoryBytes ?? unknownBytes));
  const maxBytes = maxMemoryBytes ?? (isShared ? machineBytes : gibibyte);
  const reserved = reservedBytes ?? Math.floor(bytesPerMemory / 8);
  checkInteger('maxMemoryBytes', maxBytes, 4 * pageBytes, 2 ** 40);
  checkInteger('bytesPerMemory', bytesPerMemory, 4 * pageBytes, largestMemory);
  checkInteger('reservedBytes', reserved, 0, bytesPerMemory - 4 * pageBytes);
  return { maxBytes, bytesPerMemory, reservedBytes: reserved };
}
