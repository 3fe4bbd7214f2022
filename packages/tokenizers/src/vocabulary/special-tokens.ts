/**
 * Splits text at special tokens as llama.cpp does: the longest token first over the whole text, then the next, each
 * from left to right in the remaining text fragments.
 * https://github.com/ggml-org/llama.cpp/blob/00ad355e009e83abf98f96a6ded7193b95763681/src/llama-vocab.cpp
 * (st_partition)
 */
import type { SliceCounter, Sliced } from '@winnow/tensor';
import { Trie } from '../tables/trie.js';

/** A token to match in text. */
export interface SpecialToken {
  readonly id: number;
  readonly text: string;
  /** Recognized even when special tokens are not parsed (user-defined words). */
  readonly always: boolean;
  /** Whitespace before / after the token in the text belongs to it. */
  readonly leftStrip: boolean;
  readonly rightStrip: boolean;
}

/** A piece of a text: a token (`id >= 0`) or the text in [start, end). */
export interface Fragment {
  readonly start: number;
  readonly end: number;
  readonly id: number;
}

export class SpecialTokenSplitter {
  // Longest UTF-8 spelling first.
  readonly #tokens: readonly SpecialToken[];
  readonly #trie: Trie;

  constructor(tokens: readonly SpecialToken[]) {
    const encoder = new TextEncoder();
    const sized = tokens
      .filter((token) => token.text.length > 0)
      .map((token) => ({ token, size: encoder.encode(token.text).length }));
    sized.sort((a, b) => b.size - a.size || a.token.id - b.token.id);
    this.#tokens = sized.map(({ token }) => token);
    this.#trie = new Trie(tokens.length * 4);
    this.#tokens.forEach((token, order) => this.#trie.add(token.text, order));
  }

  /** Fragments that cover the text (without stripped whitespace), in order. */
  *split(text: string, parseSpecialTokens: boolean, work: SliceCounter): Sliced<Fragment[]> {
    let fragments: Fragment[] = text.length === 0 ? [] : [{ start: 0, end: text.length, id: -1 }];
    for (const order of yield* this.#occurring(text, work)) {
      const token = this.#tokens[order]!;
      if (parseSpecialTokens || token.always) fragments = yield* cutAt(text, fragments, token, work);
    }
    return fragments;
  }

  /** Indices of the tokens that occur anywhere in the text: most texts contain none of hundreds. */
  *#occurring(text: string, work: SliceCounter): Sliced<number[]> {
    const found = new Set<number>();
    const trie = this.#trie;
    for (let start = 0; start < text.length && found.size < this.#tokens.length; start++) {
      if (start % charactersPerStep === 0 && work.spend(charactersPerStep >> 4)) yield;
      let node = trie.step(Trie.root, text.charCodeAt(start));
      for (let index = start + 1; node >= 0; index++) {
        const order = trie.valueAt(node);
        if (order >= 0) found.add(order);
        if (index >= text.length) break;
        node = trie.step(node, text.charCodeAt(index));
      }
    }
    return [...found].sort((a, b) => a - b);
  }
}

/** Characters between two checks for the end of a slice. */
const charactersPerStep = 1024;

function* cutAt(
  text: string,
  fragments: readonly Fragment[],
  token: SpecialToken,
  work: SliceCounter,
): Sliced<Fragment[]> {
  const out: Fragment[] = [];
  const size = token.text.length;
  // First occurrence at or after the current position; kept across fragments so that no part is searched twice.
  let match = text.indexOf(token.text);
  for (const fragment of fragments) {
    if (work.spend(1)) yield;
    if (fragment.id >= 0 || match < 0) {
      out.push(fragment);
      continue;
    }
    let start = fragment.start;
    if (match < start) match = text.indexOf(token.text, start);
    while (match >= 0 && match + size <= fragment.end) {
      if (work.spend(1)) yield;
      let left = match;
      if (token.leftStrip) while (left > start && isSpace(text.charCodeAt(left - 1))) left--;
      if (left > start) out.push({ start, end: left, id: -1 });
      out.push({ start: match, end: match + size, id: token.id });
      start = match + size;
      if (token.rightStrip) while (start < fragment.end && isSpace(text.charCodeAt(start))) start++;
      match = text.indexOf(token.text, start);
    }
    if (start < fragment.end) out.push({ start, end: fragment.end, id: -1 });
  }
  return out;
}

/** C's isspace for ASCII. */
function isSpace(unit: number): boolean {
  return unit === 0x20 || (unit >= 0x09 && unit <= 0x0d);
}
