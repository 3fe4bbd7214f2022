/** WordPiece: greedy longest-match-first, from the start of each word. */
import type { SliceCounter, Sliced } from '@winnow/tensor';
import type { IdList } from '../tables/id-list.js';
import { Trie } from '../tables/trie.js';
import { WordCache } from '../tables/word-cache.js';
import { longLength } from '../text/split.js';
import type { WordModel } from '../text/words.js';

export interface WordPieceOptions {
  /** Token id by text. */
  readonly tokens: Iterable<readonly [text: string, id: number]>;
  /** Prefix of the first piece of a word (GGUF: U+2581); further pieces have the prefix `continuation`. */
  readonly start: string;
  readonly continuation: string;
  readonly unkId: number | undefined;
  /** Longer words (in code points) become one unknown token; `undefined`: no limit. */
  readonly maxWordLength?: number;
}

export class WordPiece implements WordModel {
  readonly #starts = new Trie();
  readonly #continuations: Trie;
  readonly #unkId: number | undefined;
  readonly #maxWordLength: number;
  readonly #cache = new WordCache();

  constructor(options: WordPieceOptions) {
    const { start, continuation } = options;
    this.#continuations = start === continuation ? this.#starts : new Trie();
    for (const [text, id] of options.tokens) {
      if (text.startsWith(start)) this.#starts.add(text.slice(start.length), id);
      if (start !== continuation && text.startsWith(continuation)) {
        this.#continuations.add(text.slice(continuation.length), id);
      }
    }
    this.#unkId = options.unkId;
    this.#maxWordLength = options.maxWordLength ?? Number.POSITIVE_INFINITY;
  }

  encodeWord(word: string, ids: IdList): void {
    const known = this.#cache.get(word);
    if (known !== undefined) {
      ids.pushAll(known);
      return;
    }
    const before = ids.length;
    if (!this.#isLong(word) && this.#encode(word, 0, Infinity, ids) < word.length) ids.truncate(before);
    this.#endWord(before, ids);
    this.#cache.set(word, ids, before);
  }

  *encodeWordSliced(word: string, ids: IdList, work: SliceCounter): Sliced<void> {
    const before = ids.length;
    for (let at = this.#isLong(word) ? word.length : 0; at < word.length;) {
      const reached = this.#encode(word, at, at + longLength, ids);
      if (reached < at + longLength && reached < word.length) {
        ids.truncate(before);
        break;
      }
      at = reached;
      if (work.spend(longLength)) yield;
    }
    this.#endWord(before, ids);
  }

  #endWord(before: number, ids: IdList): void {
    if (ids.length === before && this.#unkId !== undefined) ids.push(this.#unkId);
  }

  #isLong(word: string): boolean {
    if (word.length <= this.#maxWordLength) return false;
    let count = 0;
    for (let index = 0; index < word.length; index++) if ((word.charCodeAt(index) & 0xfc00) !== 0xdc00) count++;
    return count > this.#maxWordLength;
  }

  /** Pushes pieces from a position until the limit. Returns where the next piece starts, before the limit if there is none. */
  #encode(word: string, from: number, limit: number, ids: IdList): number {
    let at = from;
    while (at < word.length && at < limit) {
      const trie = at === 0 ? this.#starts : this.#continuations;
      let node: number = Trie.root;
      let id = -1;
      let end = at;
      for (let index = at; index < word.length; index++) {
        node = trie.step(node, word.charCodeAt(index));
        if (node < 0) break;
        if (trie.valueAt(node) >= 0) {
          id = trie.valueAt(node);
          end = index + 1;
        }
      }
      if (id < 0) return at;
      ids.push(id);
      at = end;
    }
    return at;
  }
}
