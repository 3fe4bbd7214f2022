/** Options for weights that a memory limit has no room for. */
import type { ColdEncoding, WarmEncoding } from '@winnow/sparse-inference';
import type { ColdFiles } from '../memory/cold-files.js';

export interface WeightTierOptions {
  /**
   * Where matrices go that have to be turned before neurons can be read from them one by one: a folder (Node) for a
   * temporary file, or what makes files. Default: the folder for temporary files of the system; without files they are
   * turned again at each read, which is slow. Experts need none.
   */
  readonly coldPath?: string | URL | ColdFiles;
  /**
   * Which neurons stay in slots: those that the calibration saw most often, as many as the limit has room for beside the
   * others (`fitting`), or at least `all` that it classifies as hot, which have half of all activity (`classifyNeurons` of
   * `@winnow/sparse-inference`): limits too small for them are refused. Of no account for experts. Default `fitting`.
   */
  readonly hot?: 'fitting' | 'all';
  /**
   * How what is in memory beside the backend's is kept: `same`, so that results do not depend on the limit, or `q8_0`, so
   * that more of wide weights is. Default `same`.
   */
  readonly warm?: WarmEncoding;
  /**
   * Where what is in neither is: in the `file`, or in memory as a copy in 4 bits, `q4_0`, which is made while the model loads and
   * from then on read instead of the file; results then depend on the limit, within the rounding of 4 bits. Default `file`.
   */
  readonly cold?: ColdEncoding;
}
