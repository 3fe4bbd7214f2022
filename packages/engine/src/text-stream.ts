/** From token ids to output text: whole characters, stop texts cut off. */
import type { Tokenizer } from '@winnow/tokenizers';
import { createStopMatcher } from './stop-matcher.js';

export interface TextStream {
  /** Adds a token; returns text that is certain to be output. */
  push(tokenId: number): string;
  /** The end: what was held back. */
  flush(): string;
  /** A stop text was found; the output ends before it. */
  readonly isStopped: boolean;
}

export function createTextStream(tokenizer: Tokenizer, stops: readonly string[]): TextStream {
  const detokenizer = tokenizer.createDetokenizer({ skipSpecialTokens: true, continuation: true });
  const matcher = createStopMatcher(stops);
  return {
    get isStopped(): boolean {
      return matcher.isMatched;
    },
    push: (tokenId) => matcher.push(detokenizer.push(tokenId)),
    flush(): string {
      if (matcher.isMatched) return '';
      return matcher.push(detokenizer.flush()) + matcher.flush();
    },
  };
}
