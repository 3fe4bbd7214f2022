/** The interface of the compiled addon, `source/addon/addon.cpp`, and of the kernels that a host passes to its backend. */

/** The instruction sets that kernels are compiled for, best first. */
export const nativeLevels = ['amx', 'avx512', 'avxvnni', 'avx2', 'i8mm', 'neon'] as const;

export type NativeLevel = (typeof nativeLevels)[number];

/** Kernels of a level over one memory, for one WebAssembly instance. */
export interface NativeAttachment {
  /** Computes this thread's share of the task at an address; false if the interpreter must compute it. */
  run(task: number): boolean;
  /** Whether there is a kernel for a record; stores its bytes of scratch, shared and per thread. */
  measure(task: number, to: Float64Array): boolean;
  /** Sets the export `phaseBarrier` of the instance. */
  connect(phaseBarrier: () => void): void;
}

export interface NativeAddon {
  /** Names of the levels that this machine supports, best first. */
  levels(): string[];
  /** Runs instructions of a level; false if their results are wrong. */
  selfTest(level: string): boolean;
  /** @param bytes a view of the memory from its beginning */
  attach(bytes: Uint8Array, level: string): NativeAttachment;
  /**
   * Runs `count` passes of arithmetic on registers, or reads `bytes` once. `'int8'` sums 8-bit products to 32 bits if one
   * instruction does both, else to 16 bits; at level `amx` it multiplies bfloat16.
   * @returns operations (two per multiply-add) or bytes
   */
  measurePeak(level: string, peak: 'f32' | 'int8' | 'read', bytes: Uint8Array, count: number): number;
}

/** `'auto'` and `true` select the best level, a name selects that level, `false` disables native kernels. */
export type NativeChoice = 'auto' | boolean | NativeLevel;

/** Native kernels of one level. */
export interface NativeKernels {
  readonly level: NativeLevel;
  /** Path of the addon, which a worker loads by `require`. */
  readonly path: string;
  attach(bytes: Uint8Array): NativeAttachment;
  /**
   * Records on disk that this process runs kernels for the first time; call the result when they have returned. After two processes
   * have ended in between, the addon is rejected.
   */
  enter(): () => void;
}

export interface NativeResult {
  readonly kernels?: NativeKernels;
  /** Why there are no kernels, if that deserves a notice. */
  readonly refusal?: string;
}
