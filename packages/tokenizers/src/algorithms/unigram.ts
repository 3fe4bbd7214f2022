/** Unigram: the segmentation with the highest sum of scores, found by Viterbi. O(n * longest token). */
import type { IdList } from '../tables/id-list.js';
import { Trie } from '../tables/trie.js';
import type { WordModel } from '../text/words.js';

/** Penalty of an unknown character below the worst token score. Source: SentencePiece, `kUnkPenalty`. */
const UNKNOWN_PENALTY = 10;

export interface UnigramToken {
  readonly id: number;
  readonly text: string;
  readonly score: number;
}

export interface UnigramOptions {
  /** Tokens that may be selected; the first of duplicates wins. */
  readonly tokens: readonly UnigramToken[];
  /** Lowest score of a normal token: unknown characters score `UNKNOWN_PENALTY` below it. */
  readonly minScore: number;
  readonly unkId: number;
  /** Ids of the byte tokens for unknown characters, or `undefined`: a run of them becomes one `unkId`. */
  readonly byteIds: Int32Array | undefined;
}

export class Unigram implements WordModel {
  readonly #trie: Trie;
  readonly #ids: Int32Array;
  readonly #scores: Float64Array;
  readonly #unknownScore: number;
  readonly #unkId: number;
  readonly #byteIds: Int32Array | undefined;
  /** Number of trie steps so far, for complexity tests. */
  numSteps = 0;

  constructor(options: UnigramOptions) {
    this.#trie = new Trie(options.tokens.length);
    this.#ids = Int32Array.from(options.tokens, ({ id }) => id);
    this.#scores = Float64Array.from(options.tokens, ({ score }) => score);
    options.tokens.forEach(({ text }, index) => this.#trie.add(text, index));
    this.#unknownScore = Math.fround(options.minScore - UNKNOWN_PENALTY);
    this.#unkId = options.unkId;
    this.#byteIds = options.byteIds;
  }

  encodeWord(text: string, ids: IdList): void {
    const length = text.length;
    // Best way to reach each position: score, the token that ends there (-1: an unknown character), where it starts.
    const best = new Float64Array(length + 1).fill(Number.NEGATIVE_INFINITY);
    const tokenAt = new Int32Array(length + 1).fill(-1);
    const startAt = new Int32Array(length + 1);
    best[0] = 0;
    for (let start = 0; start < length;) {
      const unit = text.charCodeAt(start);
      const size = (unit & 0xfc00) === 0xd800 ? 2 : 1;
      const score = best[start]!;
      let node: number = Trie.root;
      let hasCharacter = false;
      for (let end = start + 1; end <= length; end++) {
        this.numSteps++;
        node = this.#trie.step(node, text.charCodeAt(end - 1));
        if (node < 0) break;
        const token = this.#trie.valueAt(node);
        if (token < 0) continue;
        if (end - start === size) hasCharacter = true;
        const candidate = score + this.#scores[token]!;
        if (candidate > best[end]!) {
          best[end] = candidate;
          tokenAt[end] = token;
          startAt[end] = start;
        }
      }
      if (!hasCharacter && score + this.#unknownScore > best[start + size]!) {
        best[start + size] = score + this.#unknownScore;
        tokenAt[start + size] = -1;
        startAt[start + size] = start;
      }
      start += size;
    }
    this.#collect(text, tokenAt, startAt, ids);
  }

  #collect(text: string, tokenAt: Int32Array, startAt: Int32Array, ids: IdList): void {
    const first = ids.length;
    let afterUnknown = false;
    for (let end = text.length; end > 0; end = startAt[end]!) {
      const token = tokenAt[end]!;
      const id = token < 0 ? this.#unkId : this.#ids[token]!;
      const unknown = id === this.#unkId;
      if (!unknown) ids.push(id);
      else if (!this.#pushBytes(text.slice(startAt[end]!, end), ids) && !afterUnknown) ids.push(id);
      afterUnknown = unknown;
    }
    ids.reverseFrom(first);
  }

  // The bytes of an unknown character, last byte first: the list is reversed at the end.
  #pushBytes(character: string, ids: IdList): boolean {
    const byteIds = this.#byteIds;
    if (byteIds === undefined) return false;
    const bytes = new TextEncoder().encode(character);
    for (const byte of bytes) if (byteIds[byte]! < 0) return false;
    for (let index = bytes.length - 1; index >= 0; index--) ids.push(byteIds[bytes[index]!]!);
    return true;
  }
}
