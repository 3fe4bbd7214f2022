/** Turns token ids into output text: whole characters, without stop sequences. */
import type { Detokenizer, Tokenizer } from '@winnow/tokenizers';
import type { StopMatcher } from './stop-matcher.js';

export interface TextStreamOptions {
  /** Whether the output is exactly the bytes of its tokens, even at the beginning of a text. */
  readonly isExact?: boolean;
  /** Control tokens that appear as text. */
  readonly shown?: ReadonlyMap<number, string>;
}

export class TextStream {
  readonly #detokenizer: Detokenizer;
  readonly #matcher: StopMatcher;
  readonly #vocabSize: number;
  readonly #shown: TextStreamOptions['shown'];

  /**
   * @param prompt the tokens before the output; after only special tokens, the output begins a text
   * @param matcher finds its end
   */
  constructor(
    tokenizer: Tokenizer,
    prompt: Int32Array,
    matcher: StopMatcher,
    { isExact = false, shown }: TextStreamOptions = {},
  ) {
    const continuation = isExact || prompt.some((tokenId) => tokenId >= 0 && !tokenizer.isSpecial(tokenId));
    this.#detokenizer = tokenizer.createDetokenizer({ skipSpecialTokens: true, continuation });
    this.#matcher = matcher;
    this.#vocabSize = tokenizer.vocabSize;
    this.#shown = shown;
  }

  /** A stop sequence was found; the output ends before it. */
  get isStopped(): boolean {
    return this.#matcher.isMatched;
  }

  /** Adds a token; returns text that is certain to be output. */
  push(tokenId: number): string {
    const spelling = this.#shown?.get(tokenId);
    if (spelling !== undefined) return this.#matcher.push(this.#detokenizer.flush() + spelling);
    // embedding tables are often longer than the vocabulary: rows without a token have no text
    return this.#matcher.push(tokenId < this.#vocabSize ? this.#detokenizer.push(tokenId) : '');
  }

  /** Ends the stream and returns what was held back. */
  flush(): string {
    if (this.#matcher.isMatched) return '';
    return this.#matcher.push(this.#detokenizer.flush()) + this.#matcher.flush();
  }
}
