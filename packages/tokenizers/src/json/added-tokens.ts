/**
 * The added tokens of tokenizer.json and how text is split at them: leftmost-longest, as in Hugging Face tokenizers.
 */
import type { SliceCounter, Sliced } from '@winnow/tensor';
import { Trie } from '../tables/trie.js';
import { charBit, charClass } from '../text/char-class.js';

export interface AddedToken {
  readonly id: number;
  readonly content: string;
  readonly singleWord: boolean;
  readonly leftStrip: boolean;
  readonly rightStrip: boolean;
  /** Matched in normalized text (by its normalized content) instead of in the raw text. */
  readonly normalized: boolean;
  readonly special: boolean;
}

/** A piece of text, or a token (`id >= 0`). */
export interface AddedFragment {
  readonly text: string;
  readonly id: number;
  readonly start: number;
}

/** Characters between two checks for the end of a slice. */
const charactersPerStep = 1024;

const WORD_CHARACTER = /[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]/u;

export class AddedTokenSplitter {
  readonly #trie = new Trie();
  readonly #tokens: readonly AddedToken[];

  /** @param contentOf the text to match */
  constructor(tokens: readonly AddedToken[], contentOf: (token: AddedToken) => string) {
    this.#tokens = tokens;
    tokens.forEach((token, index) => {
      const content = contentOf(token);
      if (content !== '') this.#trie.add(content, index);
    });
  }

  *split(text: string, work: SliceCounter): Sliced<AddedFragment[]> {
    if (this.#tokens.length === 0) return text === '' ? [] : [{ text, id: -1, start: 0 }];
    const out: AddedFragment[] = [];
    let done = 0;
    for (let at = 0; at < text.length;) {
      if (at % charactersPerStep === 0 && work.spend(charactersPerStep >> 3)) yield;
      const match = this.#match(text, at);
      if (match === undefined) {
        at++;
        continue;
      }
      const { token, end } = match;
      if (work.spend(1)) yield;
      if (token.singleWord && !isWholeWord(text, at, end)) {
        at = end;
        continue;
      }
      let left = at;
      let right = end;
      if (token.leftStrip) while (left > done && isSpace(text, left - 1)) left--;
      if (token.rightStrip) while (right < text.length && isSpace(text, right)) right++;
      if (left > done) out.push({ text: text.slice(done, left), id: -1, start: done });
      out.push({ text: token.content, id: token.id, start: at });
      done = right;
      // Another token may start within the whitespace stripped here.
      at = end;
    }
    if (done < text.length) out.push({ text: text.slice(done), id: -1, start: done });
    return out;
  }

  #match(text: string, at: number): { token: AddedToken; end: number } | undefined {
    const trie = this.#trie;
    let node = trie.step(Trie.root, text.charCodeAt(at));
    let found: { token: AddedToken; end: number } | undefined;
    for (let end = at + 1; node >= 0; end++) {
      const index = trie.valueAt(node);
      if (index >= 0) found = { token: this.#tokens[index]!, end };
      if (end >= text.length) break;
      node = trie.step(node, text.charCodeAt(end));
    }
    return found;
  }
}

function isSpace(text: string, at: number): boolean {
  return (charClass(text.charCodeAt(at)) & charBit.whitespace) !== 0;
}

function isWholeWord(text: string, start: number, end: number): boolean {
  const before = Array.from(text.slice(Math.max(0, start - 2), start)).at(-1);
  const after = Array.from(text.slice(end, end + 2))[0];
  return !(before !== undefined && WORD_CHARACTER.test(before)) && !(after !== undefined && WORD_CHARACTER.test(after));
}
