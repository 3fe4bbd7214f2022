/** The contract of drafters, which propose how a text continues. */

/** The class of drafts by models. */
export const modelClass = -1;
/** The class of texts whose continuation is unknown. */
export const noClass = 0;

/** Drafts from the text alone: this takes next to no time, so that the length of a draft is chosen after `find`. */
export interface Drafter {
  /** Appends a token of the prompt or of the output. Rejected drafts are never appended. */
  accept(tokenId: number): void;
  /**
   * Looks for a continuation of the text. Drafts of one class are accepted about equally often, so that each class has an acceptance rate
   * of its own.
   * @returns the class of the drafts that `draft` gives, above `noClass`; `noClass` if it has none
   */
  find(): number;
  /** The first `count` tokens of the continuation that was found, in an array that the next draft overwrites. */
  draft(count: number): readonly number[];
}

/** Computes drafts with a model: every token takes time, so that their number is chosen before. */
export interface ModelDrafter {
  /** Number of tokens of the text that it has to compute before it drafts, besides those that the target's cache lacks. */
  numBehind(text: readonly number[]): number;
  /** Computes the first `count` of these. @throws the signal's reason when aborted */
  catchUp(text: readonly number[], count: number, signal: AbortSignal | undefined): Promise<void>;
  /**
   * The most probable `count` tokens, one after the other, or fewer at the end of the context.
   * @param known the last tokens of the text, which the target's cache lacks
   * @throws the signal's reason when aborted
   */
  draft(
    text: readonly number[],
    known: readonly number[],
    count: number,
    signal: AbortSignal | undefined,
  ): Promise<readonly number[]>;
  dispose(): void;
}
