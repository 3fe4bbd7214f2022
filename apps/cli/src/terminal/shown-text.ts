/** Displays tokens. */
import type { ModelTokenizer } from '@winnow/engine';

/** The text of a token; for parts of a character the token as written in the vocabulary. */
export function shownText(tokenizer: ModelTokenizer['tokenizer'], id: number): string {
  const text = new TextDecoder().decode(tokenizer.tokenBytes(id));
  return text.includes('\uFFFD') ? tokenizer.tokenText(id) : text;
}
