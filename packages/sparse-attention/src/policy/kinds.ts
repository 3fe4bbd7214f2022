/**
 * Attention policies as plain objects, one type per kind. They can be stored as JSON; `text.ts` has their text
 * form.
 */

/** Every key of the context. */
export interface DensePolicy {
  readonly kind: 'dense';
}

/** Window, globals, log-stride and landmarks: O(W + log N) keys per query. */
export interface SubquadraticPolicy {
  readonly kind: 'subquadratic';
  /** Number of past tokens that a query attends to besides itself; on both sides if bidirectional. */
  readonly window: number;
  /** Tokens per landmark. */
  readonly blockSize: number;
  /** Positions that every later query attends to. */
  readonly globals: readonly number[];
  /** Tokens (and landmarks) at distances 1, 2, 4, ... */
  readonly logStride: boolean;
  /** Means of blocks as keys: of all blocks, of those that are not completely within the window, or none. */
  readonly landmarks: 'compat' | 'outside-window' | 'off';
  /** `log-count` adds log(tokens of the block) to the logit of a landmark. */
  readonly landmarkBias: 'none' | 'log-count';
  /**
   * Every `delta`-th query of a prompt also attends densely, which corrects the queries between; 0: none does. Prefill
   * only.
   */
  readonly delta: number;
}

/** Query-aware sparse decode (SparQ): approximate logits from few components, exact attention over the top tokens. */
export interface SparqPolicy {
  readonly kind: 'sparq';
  /** Number of query components that the approximate logits use. */
  readonly rank: number;
  /** Number of tokens with exact attention, including the local window. */
  readonly topK: number;
  /** Number of most recent tokens that are always among them. */
  readonly local: number;
  /** Substitute the mean of all values for the tokens that were not selected. */
  readonly meanValue: boolean;
  /** Correct the softmax temperature of the approximate logits for the components left out. */
  readonly temperature: boolean;
  /** Select components and tokens per KV head for all its query heads together, instead of per query head. */
  readonly grouped: boolean;
  /** `both` keeps a transposed copy of the keys (+50 % KV memory). */
  readonly keyLayout: 'row' | 'both';
}

/** Chunked prefill with a memory of heavy hitters (H2O). */
export interface H2oPrefillPolicy {
  readonly kind: 'h2o-prefill';
  /** Tokens per chunk, S. */
  readonly chunk: number;
  /** Number of most recent tokens that memory keeps, L. */
  readonly local: number;
  /** Number of heavy hitters that memory keeps, H. */
  readonly heavy: number;
  /** Number of first tokens of the context that memory always keeps. */
  readonly sinks: number;
  /**
   * Every `delta`-th query of a prompt also attends densely, which corrects the queries between; 0: none does. Prefill
   * only.
   */
  readonly delta: number;
}

/** The first `sinks` and the last `window` tokens, the query's own included (StreamingLLM). */
export interface StreamingPolicy {
  readonly kind: 'streaming';
  readonly window: number;
  readonly sinks: number;
  /**
   * Every `delta`-th query of a prompt also attends densely, which corrects the queries between; 0: none does. Prefill
   * only.
   */
  readonly delta: number;
}

/** Pages by an upper bound of their logits, with a certificate of the mass that may be missing. */
export interface PageTopKPolicy {
  readonly kind: 'page-topk';
  /** Maximum number of pages selected, besides those that are always exact. */
  readonly budget: number | 'all';
  /** Stop when the mass that may be missing is at most this; 0: never stop early. */
  readonly epsilon: number;
  /** Number of first tokens that are always exact. */
  readonly sinks: number;
  /** Number of most recent tokens that are always exact. */
  readonly window: number;
  /** Tokens per page. */
  readonly pageSize: number;
}

/**
 * Heavy keys by page bounds and a random sample of the others, as large as the error of the output needs (vAttention).
 */
export interface VerifiedTopKPolicy {
  readonly kind: 'verified-topk';
  /** Relative error of the output that is not exceeded... */
  readonly epsilon: number;
  /** ...with a probability of `1 - delta`. */
  readonly delta: number;
  /** Number of pages with the largest bounds that are always exact. */
  readonly budget: number;
  /** Number of first tokens that are always exact. */
  readonly sinks: number;
  /** Number of most recent tokens that are always exact. */
  readonly window: number;
  /** Tokens per page. */
  readonly pageSize: number;
  /** Expected number of keys of the first sample. */
  readonly sample: number;
  /** Equal seeds draw equal samples. */
  readonly seed: number;
}

/**
 * The k keys of the largest logits per query head, which no method can know in advance: an upper bound for comparison.
 */
export interface OracleTopKPolicy {
  readonly kind: 'oracle-topk';
  readonly k: number;
}

/** The attention policy of one layer in one phase. */
export type AttentionPolicy =
  | DensePolicy
  | SubquadraticPolicy
  | SparqPolicy
  | H2oPrefillPolicy
  | StreamingPolicy
  | PageTopKPolicy
  | VerifiedTopKPolicy
  | OracleTopKPolicy;

/** The name of a policy in `kind` and in text. */
export type PolicyKind = AttentionPolicy['kind'];

/** Prefill: many queries of a prompt. Decode: one query, or a few drafts. */
export type AttentionPhase = 'prefill' | 'decode';

/** Overrides the policy of layers `first` to `last` (inclusive, from 0) in one phase or in both. */
export interface LayerOverride {
  readonly first: number;
  readonly last: number;
  /** `both`: every phase that the policy supports. */
  readonly phase: AttentionPhase | 'both';
  readonly policy: AttentionPolicy;
}

/** The attention policies of a whole model. */
export interface AttentionSpec {
  readonly prefill: AttentionPolicy;
  readonly decode: AttentionPolicy;
  /** Number of first layers that are dense in both phases. */
  readonly denseFirst: number;
  /** Number of last layers that are dense in both phases. */
  readonly denseLast: number;
  /** Later entries win; all of them win over `denseFirst` and `denseLast`. */
  readonly layers: readonly LayerOverride[];
}

/** The policies of one layer. */
export interface LayerPolicy {
  readonly prefill: AttentionPolicy;
  readonly decode: AttentionPolicy;
}
