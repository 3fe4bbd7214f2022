/** Messages between the bench and the process that runs a peer. Each request has one answer. */

export type PeerRequest =
  | { readonly kind: 'load'; readonly modulePath: string; readonly settings: PeerSettings }
  /** Brings the cache to exactly these tokens; what it shares with the tokens it holds is kept. */
  | { readonly kind: 'context'; readonly tokens: readonly number[] }
  /** Empties the cache, then computes these tokens and the one after them. */
  | { readonly kind: 'prefill'; readonly tokens: readonly number[] }
  /** Greedy tokens after `token`; the cache is as before afterwards. */
  | { readonly kind: 'decode'; readonly token: number; readonly count: number }
  /** Log-probabilities after the last token, with an empty cache before and afterwards. */
  | { readonly kind: 'logprobs'; readonly tokens: readonly number[] };

export interface PeerSettings {
  readonly modelPath: string;
  readonly contextSize: number;
  readonly threads: number;
  readonly flashAttention: boolean;
}

export interface PeerResult {
  readonly timeMs: number;
  readonly tokens: readonly number[];
  readonly logprobs?: Float32Array;
}

/** `cpuMs` is the processor time of the process so far. */
export type PeerAnswer = (PeerResult & { readonly cpuMs: number }) | { readonly error: string };
