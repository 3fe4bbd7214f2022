/** Options for weights that do not fit into the memory budget. */
import type { ByteSource } from '@winnow/bytes';
import type { ColdEncoding, WarmEncoding } from '@winnow/sparse-inference';
import type { ColdFiles, OpenColdFolder } from '../memory/cold-files.js';
import { refuseFields } from '../sparsity/options.js';
import type { OptionNames } from '@winnow/tensor';

/** The memory budget, and the tiers of weights that do not fit. */
export interface MemoryOptions {
  /**
   * Total memory budget in bytes: weights, KV cache and scratch. Experts, or neurons with `sparsity`, that do not fit
   * stay in the file until a step needs them. Default, and at most: what the backend can hold.
   */
  readonly budget?: number;
  /**
   * Which neurons are pinned in the hot tier: the most frequent ones of the calibration, as many as the budget holds
   * (`fitting`), or at least `all` neurons that it classifies as hot, which account for half of all activity
   * (`classifyNeurons` of `@winnow/sparse-inference`); smaller budgets are rejected. Experts ignore it. Default
   * `fitting`.
   */
  readonly hot?: 'fitting' | 'all';
  /**
   * The encoding of the warm tier, in memory outside the backend: `same`, so that results do not depend on the budget,
   * or `q8_0`, so that more f32 and f16 weights fit. Default `same`.
   */
  readonly warm?: WarmEncoding;
  /**
   * The cold tier: the model's `file`, or a 4-bit copy in memory, `q4_0`, which is created at load and read instead of
   * the file. With the copy results depend on the budget, within the error of 4-bit quantization. Default `file`.
   */
  readonly cold?: ColdEncoding;
  /**
   * Where transposed matrices are stored, so that single neurons can be read: a folder (Node) for a temporary file, or
   * an object that creates files. Default: the system's folder for temporary files. Without files every read transposes
   * again, which is slow. Experts need none.
   */
  readonly folder?: string | URL | ColdFiles;
}

export const memoryNames: OptionNames<MemoryOptions> = {
  budget: true,
  hot: true,
  warm: true,
  cold: true,
  folder: true,
};

/** The budget of the option `memory`, in bytes. */
export function budgetOf(memory: number | MemoryOptions | undefined): number | undefined {
  return typeof memory === 'object' ? memory.budget : memory;
}

/** Host functions that offloaded weights need. */
export interface WeightHost {
  readonly openFile?: (path: string | URL) => Promise<ByteSource>;
  readonly openFolder: OpenColdFolder;
  /** Creates temporary files, which need not outlive the model. */
  readonly temporaryFiles?: () => ColdFiles;
}

/** @throws {ArgumentError} for tiers without a memory budget, which would have no effect */
export function checkWeightTiers(memory: number | MemoryOptions | undefined): void {
  if (typeof memory === 'object' && memory.budget === undefined) refuseFields('memory', memory, 'memory.budget');
}
