/** How many tokens of a sequence a step takes: a chunk of its prompt, or an image that needs a step of its own. */
import { isImageId } from '../images/image-rows.js';
import type { StepPart } from './sequence.js';

export class Chunks {
  /** Maximum number of tokens of a chunk. */
  readonly maxTokens: number;
  readonly #maxImageRows: number;

  /**
   * @param maxImageRows maximum number of rows of an image that need a step of their own; 0 if they are treated like
   *   other tokens
   */
  constructor(maxTokens: number, maxImageRows: number) {
    this.maxTokens = maxTokens;
    this.#maxImageRows = maxImageRows;
  }

  /** Whether a token is a row of an image that needs a step with the other rows and nothing else. */
  isImage(token: number): boolean {
    return this.#maxImageRows > 0 && isImageId(token);
  }

  isImagePart({ tokens, offset }: StepPart): boolean {
    return this.isImage(tokens[offset] as number);
  }

  /** The end of a step from `begin` on, at most `limit`. */
  endOf(tokens: Int32Array, begin: number, limit: number, maxTokens: number = this.maxTokens): number {
    if (this.#maxImageRows === 0) return Math.min(limit, begin + maxTokens);
    const isImage = this.isImage(tokens[begin] as number);
    const max = Math.min(limit, begin + (isImage ? this.#maxImageRows : maxTokens));
    let end = begin + 1;
    while (end < max && this.isImage(tokens[end] as number) === isImage) end++;
    return end;
  }
}
