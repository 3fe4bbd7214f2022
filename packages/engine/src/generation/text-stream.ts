/** Turns token ids into output text: whole characters, without stop sequences. */
import type { Tokenizer } from '@winnow/tokenizers';
import { StopMatcher } from './stop-matcher.js';

export interface TextStream {
  /** Adds a token; returns text that is certain to be output. */
  push(tokenId: number): string;
  /** Ends the stream and returns what was held back. */
  flush(): string;
  /** A stop sequence was found; the output ends before it. */
  readonly isStopped: boolean;
}

export interface TextStreamOptions {
  /** Whether the output is exactly the bytes of its tokens, even at the beginning of a text. */
  readonly isExact?: boolean;
  /** Control tokens that appear as text. */
  readonly shown?: ReadonlyMap<number, string>;
}

/** @param prompt the tokens before the output; after only special tokens, the output begins a text */
export function createTextStream(
  tokenizer: Tokenizer,
  prompt: Int32Array,
  stops: readonly string[],
  { isExact = false, shown }: TextStreamOptions = {},
): TextStream {
  const continuation = isExact || prompt.some((tokenId) => !tokenizer.isSpecial(tokenId));
  const detokenizer = tokenizer.createDetokenizer({ skipSpecialTokens: true, continuation });
  const matcher = new StopMatcher(stops);
  return {
    get isStopped(): boolean {
      return matcher.isMatched;
    },
    // embedding tables are often longer than the vocabulary: rows without a token have no text
    push(tokenId): string {
      const spelling = shown?.get(tokenId);
      if (spelling !== undefined) return matcher.push(detokenizer.flush() + spelling);
      return matcher.push(tokenId < tokenizer.vocabSize ? detokenizer.push(tokenId) : '');
    },
    flush(): string {
      if (matcher.isMatched) return '';
      return matcher.push(detokenizer.flush()) + matcher.flush();
    },
  };
}
