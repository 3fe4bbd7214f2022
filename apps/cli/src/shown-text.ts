/** Tokens for people. */
import type { ModelTokenizer } from '@winnow/engine';

/** What the token adds to a text; the vocabulary's spelling for parts of a character. */
export function shownText(tokenizer: ModelTokenizer['tokenizer'], id: number): string {
  const text = new TextDecoder().decode(tokenizer.tokenBytes(id));
  return text.includes('\uFFFD') ? tokenizer.tokenText(id) : text;
}
