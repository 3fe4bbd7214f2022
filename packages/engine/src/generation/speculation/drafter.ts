/** The contract of drafters, which propose how a text continues. */

/** Tokens that may come next. */
export interface Draft {
  readonly tokens: readonly number[];
  /** Drafts of one class are accepted about equally often, so that each class has an acceptance rate of its own. */
  readonly draftClass: number;
}

export const noDraft: Draft = { tokens: [], draftClass: 0 };

/** Drafts from the text alone: this takes next to no time, so that the length of a draft is chosen afterwards. */
export interface Drafter {
  /** Appends a token of the prompt or of the output. Rejected drafts are never appended. */
  accept(tokenId: number): void;
  /** The most probable continuation: at most `maxTokens` tokens, fewer or none where it is unknown. */
  draft(maxTokens: number): Draft;
}

/** Computes drafts with a model: every token takes time, so that their number is chosen before. */
export interface ModelDrafter {
  /**
   * The most probable `count` tokens, one after the other, or fewer at the end of the context.
   * @param known the last tokens of the text, which the target's cache lacks
   */
  draft(text: readonly number[], known: readonly number[], count: number): Promise<readonly number[]>;
  dispose(): void;
}
