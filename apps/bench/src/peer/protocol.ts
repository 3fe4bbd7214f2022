/** Messages between the bench and the process that runs a peer. Each request has one response. */

export type PeerRequest =
  | { readonly kind: 'load'; readonly modulePath: string; readonly settings: PeerSettings }
  /** Sets the cache of a slot to exactly these tokens. */
  | { readonly kind: 'context'; readonly slot: number; readonly tokens: readonly number[] }
  /** Clears the cache of slot 0, then computes these tokens and the next one. */
  | { readonly kind: 'prefill'; readonly tokens: readonly number[] }
  /** Greedy tokens after `token`; restores the cache of the slot afterwards. */
  | { readonly kind: 'decode'; readonly slot: number; readonly token: number; readonly count: number }
  /** Log-probabilities after the last token; the cache of slot 0 is empty before and afterwards. */
  | { readonly kind: 'logprobs'; readonly tokens: readonly number[] };

export interface PeerSettings {
  readonly modelPath: string;
  /** Capacity of each slot in tokens: separate contexts. */
  readonly contextSizes: readonly number[];
  readonly threads: number;
  readonly flashAttention: boolean;
}

export interface PeerResult {
  readonly timeMs: number;
  readonly tokens: readonly number[];
  readonly logprobs?: Float32Array;
}

/** `cpuMs` is the CPU time of the process so far. */
export type PeerAnswer = (PeerResult & { readonly cpuMs: number }) | { readonly error: string };
