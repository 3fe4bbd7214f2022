/** The interface of the compiled addon, `source/addon/addon.cpp`, and of the kernels that a host gives its backend. */

/** The instruction sets that kernels are compiled for, best first. */
export const nativeLevels = ['amx', 'avx512', 'avxvnni', 'avx2', 'i8mm', 'neon'] as const;

export type NativeLevel = (typeof nativeLevels)[number];

/** Kernels of a level over one memory, for one WebAssembly instance. */
export interface NativeAttachment {
  /** Computes the share of this thread of the task at an address; false if the interpreter has to. */
  run(task: number): boolean;
  /** Whether there is a kernel for a record; stores its bytes of scratch, shared and per thread. */
  measure(task: number, to: Float64Array): boolean;
  /** Sets the export `phaseBarrier` of the instance. */
  connect(phaseBarrier: () => void): void;
}

export interface NativeAddon {
  /** Names of the levels that this machine has, best first. */
  levels(): string[];
  /** Runs instructions of a level; false if their results are wrong. */
  selfTest(level: string): boolean;
  /** @param bytes a view of the memory from its beginning */
  attach(bytes: Uint8Array, level: string): NativeAttachment;
  /**
   * Runs `count` passes of arithmetic on registers, or reads `bytes` once. `'int8'` are 8-bit products with 32-bit sums where one
   * instruction does both, else with 16-bit sums; those of `amx` are of bfloat16.
   * @returns operations (two per multiply-add) or bytes
   */
  measurePeak(level: string, peak: 'f32' | 'int8' | 'read', bytes: Uint8Array, count: number): number;
}

/** `'auto'` takes the best level, `true` too, a name that level, and `false` none. */
export type NativeChoice = 'auto' | boolean | NativeLevel;

/** Native kernels of one level. */
export interface NativeKernels {
  readonly level: NativeLevel;
  /** Path of the addon, which a worker loads by `require`. */
  readonly path: string;
  attach(bytes: Uint8Array): NativeAttachment;
  /**
   * Notes, where the next process finds it, that this one is inside kernels that it has not run before; call the result when they
   * have returned. When two processes have ended in between, the addon is refused.
   */
  enter(): () => void;
}

export interface NativeResult {
  readonly kernels?: NativeKernels;
  /** Why there are none, if that is worth a notice. */
  readonly refusal?: string;
}
