/** Options for weights that do not fit into the memory budget. */
import type { ByteSource } from '@winnow/bytes';
import type { ColdEncoding, WarmEncoding } from '@winnow/sparse-inference';
import type { ColdFiles, OpenColdFolder } from '../memory/cold-files.js';
import { refuseFields, type SparsityOptions } from '../sparsity/options.js';

export interface WeightTierOptions {
  /**
   * Where transposed matrices go, so that single neurons can be read from them: a folder (Node) for a temporary file, or an
   * object that creates files. Default: the system's folder for temporary files. Without files every read transposes again,
   * which is slow. Experts need none.
   */
  readonly coldPath?: string | URL | ColdFiles;
  /**
   * Which neurons are pinned in the hot tier: the most frequent ones of the calibration, as many as the budget holds
   * (`fitting`), or at least `all` neurons that it classifies as hot, which have half of all activity (`classifyNeurons` of
   * `@winnow/sparse-inference`); smaller budgets are refused. Experts ignore it. Default `fitting`.
   */
  readonly hot?: 'fitting' | 'all';
  /**
   * The encoding of the warm tier, in memory outside the backend: `same`, so that results do not depend on the budget, or
   * `q8_0`, so that more of wide weights fits. Default `same`.
   */
  readonly warm?: WarmEncoding;
  /**
   * The cold tier: the model's `file`, or a 4-bit copy in memory, `q4_0`, which is made at load time and read instead of the
   * file. With the copy results depend on the budget, within the error of 4-bit quantization. Default `file`.
   */
  readonly cold?: ColdEncoding;
}

export interface SparseLoadOptions extends SparsityOptions {
  /**
   * The tiers of weights that `memoryLimitBytes` has no room for: experts, and with a calibration neurons, are read on demand
   * from the model's file, which stays open.
   */
  readonly weightTiers?: WeightTierOptions;
}

/** The files of the host, as far as weights need them. */
export interface WeightHost {
  readonly openFile?: (path: string | URL) => Promise<ByteSource>;
  readonly openFolder: OpenColdFolder;
  /** Makes temporary files, which need not outlive the model. */
  readonly temporaryFiles?: () => ColdFiles;
}

/** @throws {ArgumentError} for tier options without a memory budget, which would have no effect */
export function checkWeightTiers({
  weightTiers = {},
  memoryLimitBytes,
}: SparseLoadOptions & { readonly memoryLimitBytes?: number }): void {
  if (memoryLimitBytes === undefined) refuseFields('weightTiers', weightTiers, 'memoryLimitBytes');
}
