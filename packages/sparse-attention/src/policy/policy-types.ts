/** Attention policies as plain objects, one type per kind. They survive JSON; `policy-text.ts` has their text form. */

/** Every key of the context. */
export interface DensePolicy {
  readonly kind: 'dense';
}

/** Window, globals, log-stride and landmarks: O(W + log N) keys per query. */
export interface SubquadraticPolicy {
  readonly kind: 'subquadratic';
  /** Past tokens that a query sees besides itself; bidirectional: on both sides. */
  readonly window: number;
  /** Tokens per landmark. */
  readonly blockSize: number;
  /** Positions that every later query sees. */
  readonly globals: readonly number[];
  /** Tokens (and landmarks) at distances 1, 2, 4, ... */
  readonly logStride: boolean;
  /** Means of blocks as keys: of all blocks, only of those whose tokens are not all keys anyway, or none. */
  readonly landmarks: 'compat' | 'outside-window' | 'off';
  /** `log-count` adds log(tokens of the block) to the logit of a landmark. */
  readonly landmarkBias: 'none' | 'log-count';
}

/** Query-aware sparse decode (SparQ): approximate logits from few components, exact attention over the best tokens. */
export interface SparqPolicy {
  readonly kind: 'sparq';
  /** Components of the query that the approximate logits use. */
  readonly rank: number;
  /** Tokens with exact attention, the local window included. */
  readonly topK: number;
  /** Most recent tokens that are always among them. */
  readonly local: number;
  /** Use the mean of all values for the tokens that were not chosen. */
  readonly meanValue: boolean;
  /** Correct the softmax temperature of the approximate logits for the components left out. */
  readonly temperature: boolean;
  /** Choose components and tokens per KV head for all its query heads together, or per query head. */
  readonly grouped: boolean;
  /** `both` keeps a transposed copy of the keys (+50 % KV memory). */
  readonly keyLayout: 'row' | 'both';
}

/** Chunked prefill with a memory of heavy hitters (H2O). */
export interface H2oPrefillPolicy {
  readonly kind: 'h2o-prefill';
  /** Tokens per chunk, S. */
  readonly chunk: number;
  /** Most recent tokens that memory keeps, L. */
  readonly local: number;
  /** Tokens that memory keeps for their score, H. */
  readonly heavy: number;
  /** First tokens of the context that memory always keeps. */
  readonly sinks: number;
}

/** The first `sinks` and the last `window` tokens, the query's own included (StreamingLLM). */
export interface StreamingPolicy {
  readonly kind: 'streaming';
  readonly window: number;
  readonly sinks: number;
}

/** Pages by an upper bound of their logits, with a certificate of the mass that may be missing. */
export interface PageTopKPolicy {
  readonly kind: 'page-topk';
  /** Maximum number of pages chosen, besides those that are always exact. */
  readonly budget: number | 'all';
  /** Stop when the mass that may be missing is at most this; 0: never stop early. */
  readonly epsilon: number;
  /** First tokens that are always exact. */
  readonly sinks: number;
  /** Most recent tokens that are always exact. */
  readonly window: number;
  /** Tokens per page. */
  readonly pageSize: number;
}

/** The k keys of the largest logits per query head, which no method can know in advance: a reference, not a saving. */
export interface OracleTopKPolicy {
  readonly kind: 'oracle-topk';
  readonly k: number;
}

/** How one layer attends in one phase. */
export type AttentionPolicy =
  | DensePolicy
  | SubquadraticPolicy
  | SparqPolicy
  | H2oPrefillPolicy
  | StreamingPolicy
  | PageTopKPolicy
  | OracleTopKPolicy;

/** The name of a policy, as it stands in `kind` and in text. */
export type PolicyKind = AttentionPolicy['kind'];

/** Prefill: many queries of a prompt. Decode: one query, or a few drafts. */
export type AttentionPhase = 'prefill' | 'decode';

/** Gives layers `first` to `last` (inclusive, from 0) a policy of their own in one phase or in both. */
export interface LayerOverride {
  readonly first: number;
  readonly last: number;
  /** `both`: wherever the policy is possible. */
  readonly phase: AttentionPhase | 'both';
  readonly policy: AttentionPolicy;
}

/** How a whole model attends. */
export interface AttentionSpec {
  readonly prefill: AttentionPolicy;
  readonly decode: AttentionPolicy;
  /** This many first layers are dense in both phases. */
  readonly denseFirst: number;
  /** This many last layers are dense in both phases. */
  readonly denseLast: number;
  /** Later entries win; all of them win over `denseFirst` and `denseLast`. */
  readonly layers: readonly LayerOverride[];
}

/** The policies of one layer. */
export interface LayerPolicy {
  readonly prefill: AttentionPolicy;
  readonly decode: AttentionPolicy;
}
