/** Options of the backend, their defaults and valid values. */
import { nativeLevels, type NativeChoice, type NativeKernels, type NativeResult } from '@winnow/native';
import { BackendError, type OptionNames } from '@winnow/tensor';
import type { WasmHost } from '../host/host.js';
import { supportsRelaxedSimd, type Variant } from '../host/web-assembly.js';
import { pageBytes, type int8Dots } from '../kernels/layout.generated.js';
import { checkChoice, checkInteger, checkMilliseconds } from './check-options.js';
import { resolveThreads, type Threads } from './threads.js';

export interface WasmBackendOptions {
  /** Number of workers. Default: the number of hardware threads. */
  readonly numThreads?: number | undefined;
  /** The host that creates workers. */
  readonly host: WasmHost;
  /** Whether to use relaxed SIMD. Default `'auto'`: if the JavaScript engine supports it. */
  readonly relaxedSimd?: 'auto' | boolean;
  /**
   * Which int8 dot product kernels use with relaxed SIMD: `'maddubs'` sums pairs of products to 16 bits, which suits
   * processors without a four-way dot product (SSE, AVX2); `'generic'` works everywhere. The results are the same.
   * Default `'auto'`: the fastest on this machine. Without relaxed SIMD the option has no effect.
   */
  readonly int8Dot?: 'auto' | 'maddubs' | 'generic';
  /**
   * Native kernels, if the host has them: `true` requires them, a name requires that instruction set, `false` disables
   * them. Default: the environment variable `WINNOW_NATIVE`, else the best instruction set of this machine.
   */
  readonly native?: NativeChoice | undefined;
  /**
   * Whether to share the memory with workers. Default `'auto'`: if the page may share memory and start workers. Otherwise
   * everything runs on the calling thread, which yields to its event loop between ops; the backend's `notices` give the
   * reason.
   */
  readonly sharedMemory?: 'auto' | boolean;
  /**
   * Total memory budget for weights, caches and activations. Default: the memory of the machine, from 4 to 64 GiB, if
   * memory is shared, else 1 GiB.
   */
  readonly maxMemoryBytes?: number;
  /**
   * Maximum size of one WebAssembly memory, at most 4 GiB. Larger models are spread over several, each with its own
   * threads. Default 4 GiB.
   */
  readonly bytesPerMemory?: number;
  /**
   * Bytes that weights and caches leave free in each memory for activations, when there can be several memories. Default:
   * an eighth of `bytesPerMemory`.
   */
  readonly reservedBytes?: number;
  /**
   * Activations of GEMMs with block-quantized weights: `'f32'` is exact; `'int8'` quantizes them to 8 bits per block of
   * 32 for q8_0, q4_0, q4_K, q5_K and q6_K, which is faster. GEMMs with f32, f16 and bf16 weights always use f32.
   * Default `'int8'`.
   */
  readonly activations?: 'f32' | 'int8' | undefined;
  /** Have workers post a message per job even where `Atomics.waitAsync` exists. Default false. */
  readonly usesMessages?: boolean;
  /**
   * Rough number of multiply-adds below which an op runs on one thread. Default 30,000; with 0, every op runs on all
   * workers.
   */
  readonly minSharedWork?: number;
  /**
   * Programs that take at most this many milliseconds on one thread run on the calling thread, which avoids waking the
   * workers; if workers turn out to be slower, programs may take twice as long. Default 2, or 0 if `minSharedWork` is 0;
   * with 0, everything runs on workers.
   */
  readonly maxCallerMs?: number;
}

/** As `WasmBackendOptions`, with the workers of Node or of the browser by default. */
export interface CreateWasmBackendOptions extends Omit<WasmBackendOptions, 'host'> {
  readonly host?: WasmHost;
}

export const wasmBackendNames: OptionNames<WasmBackendOptions> = {
  numThreads: true,
  host: true,
  relaxedSimd: true,
  int8Dot: true,
  native: true,
  sharedMemory: true,
  maxMemoryBytes: true,
  bytesPerMemory: true,
  reservedBytes: true,
  activations: true,
  usesMessages: true,
  minSharedWork: true,
  maxCallerMs: true,
};

/** The options apart from the host. */
export type BackendChoices = Omit<WasmBackendOptions, 'host'>;

/** Options with every default filled in. */
export interface ResolvedOptions extends Threads {
  readonly host: WasmHost;
  readonly variant: Variant;
  readonly int8Dot: keyof typeof int8Dots;
  readonly native: NativeKernels | undefined;
  readonly maxBytes: number;
  readonly bytesPerMemory: number;
  readonly reservedBytes: number;
  readonly activations: 'f32' | 'int8';
  readonly usesMessages: boolean;
  readonly minWork: number;
  readonly maxCallerMs: number;
}

const gibibyte = 2 ** 30;
/** The limit of 32-bit addresses. */
const largestMemory = 4 * gibibyte;
/** Bounds of the default of `maxMemoryBytes`. */
const [fewBytes, manyBytes, unknownBytes] = [4 * gibibyte, 64 * gibibyte, 16 * gibibyte];

/**
 * @throws {ArgumentError} for invalid options
 * @throws {BackendError} when the JavaScript engine lacks a required feature
 */
export async function resolveOptions(options: BackendChoices, host: WasmHost): Promise<ResolvedOptions> {
  const threads = await resolveThreads(options, host);
  const minWork = options.minSharedWork ?? 30_000;
  checkInteger('minSharedWork', minWork, 0, 2 ** 31 - 1);
  const maxCallerMs = options.maxCallerMs ?? (minWork === 0 ? 0 : 2);
  checkMilliseconds('maxCallerMs', maxCallerMs);
  return {
    host,
    ...kernelChoices(options),
    ...memorySizes(options, host, threads.isShared),
    ...threads,
    ...(await resolveNative(options.native, host, threads)),
    usesMessages: options.usesMessages ?? false,
    ...{ minWork, maxCallerMs },
  };
}

function kernelChoices(options: BackendChoices): Pick<ResolvedOptions, 'variant' | 'int8Dot' | 'activations'> {
  const relaxed = checkChoice('relaxedSimd', options.relaxedSimd ?? 'auto', ['auto', true, false]);
  const variant = (relaxed === 'auto' ? supportsRelaxedSimd() : relaxed) ? 'relaxed-simd' : 'simd';
  const int8Dot = checkChoice('int8Dot', options.int8Dot ?? 'auto', ['auto', 'maddubs', 'generic']);
  const activations = checkChoice('activations', options.activations ?? 'int8', ['f32', 'int8']);
  if (variant === 'relaxed-simd' && !supportsRelaxedSimd()) {
    throw new BackendError({ backend: 'wasm', message: 'this JavaScript engine does not support relaxed SIMD' });
  }
  return { variant, int8Dot, activations };
}

/** Opens native kernels; a failure is an error only if they were requested explicitly, else a notice. */
async function resolveNative(
  choice: NativeChoice | undefined,
  host: WasmHost,
  { notices }: Threads,
): Promise<Pick<ResolvedOptions, 'native' | 'notices'>> {
  if (choice !== undefined) checkChoice('native', choice, ['auto', true, false, ...nativeLevels]);
  const isRequired = choice !== undefined && choice !== 'auto' && choice !== false;
  const missing = isRequired ? { refusal: 'this host has none' } : {};
  const { kernels, refusal }: NativeResult = (await host.openNative?.(choice)) ?? missing;
  if (refusal === undefined) return { native: kernels, notices };
  const message = `native kernels: ${refusal}`;
  if (isRequired) throw new BackendError({ backend: 'wasm', message });
  return { native: undefined, notices: [...notices, message] };
}

function memorySizes(
  { maxMemoryBytes, bytesPerMemory = largestMemory, reservedBytes }: BackendChoices,
  host: WasmHost,
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
