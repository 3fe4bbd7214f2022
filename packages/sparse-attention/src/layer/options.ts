/** The options of a call and its results. */
import type { Tensor3 } from '@winnow/tensor';

/** The keys that some query heads of one query attended to. */
export interface KeyVisit {
  /** Position of the query. */
  readonly query: number;
  /** The query heads `[firstHead, firstHead + numHeads)`. */
  readonly firstHead: number;
  readonly numHeads: number;
  /** Positions of tokens, ascending. */
  readonly tokens: Int32Array;
  /** Blocks whose means were keys (landmarks), ascending. */
  readonly blocks: Int32Array;
}

export interface AttendOptions {
  /** Receives the output, `[tokens, numHeads, valueDim]`. Default: a new tensor. */
  readonly out?: Tensor3 | undefined;
  /**
   * Receives the keys of each query. Policies that choose keys by their values report those whose probability is above
   * 0 in float32. Needs the probabilities of all keys.
   */
  readonly onVisit?: ((visit: KeyVisit) => void) | undefined;
  /**
   * Accumulates the softmax weight of every visited token: `mass[kvHead * massStride + position]`, summed over query
   * heads.
   */
  readonly mass?: Float32Array | undefined;
  /** Positions per KV head in `mass`. Default: `mass.length / numKvHeads`. */
  readonly massStride?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface AttentionResult {
  /** `[tokens, numHeads, valueDim]` */
  readonly out: Tensor3;
  /** Number of query-key pairs visited, over all query heads. */
  readonly pairs: number;
  /** `page-topk`: upper bound on the missing softmax mass, `[tokens, numHeads]`. */
  readonly certificate?: Float32Array | undefined;
  /** `page-topk`: upper bound on the norm of the output error, `[tokens, numHeads]`. */
  readonly errorBound?: Float32Array | undefined;
  /** `page-topk`: pages attended to, `[tokens, numKvHeads]`. */
  readonly pages?: Int32Array | undefined;
  /** `verified-topk`: estimated relative error of the output that `1 - delta` of the rows keep, `[tokens, numHeads]`. */
  readonly errorEstimate?: Float32Array | undefined;
  /** `sparq`: approximate mass of the chosen tokens, `[tokens, numHeads]`. */
  readonly alpha?: Float32Array | undefined;
}
