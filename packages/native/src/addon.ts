/** The interface of the compiled addon, `source/addon/addon.cpp`. */

/** The instruction sets that kernels are compiled for, best first. */
export const nativeLevels = ['avx512', 'avx2'] as const;

export type NativeLevel = (typeof nativeLevels)[number];

/** Kernels of a level over one memory, for one WebAssembly instance. */
export interface NativeAttachment {
  /** Computes the share of this thread; `task` is the address of the task in the memory. */
  run(task: number): void;
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
}
