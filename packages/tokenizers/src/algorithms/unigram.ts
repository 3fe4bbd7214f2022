/** Unigram: the segmentation with the highest sum of scores, found by Viterbi. O(n * longest token). */
import type { SliceCounter, Sliced } from '@winnow/tensor';
import type { IdList } from '../tables/id-list.js';
import { Trie } from '../tables/trie.js';
import { longLength } from '../text/split.js';
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

/** The best way to reach each position of a text. */
interface Paths {
  readonly best: Float64Array; // scores
  readonly tokenAt: Int32Array; // the token that ends there, -1 for an unknown character
  readonly startAt: Int32Array; // where it starts
}

function pathsOf({ length }: string): Paths {
  const size = length + 1;
  return { best: new Float64Array(size), tokenAt: new Int32Array(size), startAt: new Int32Array(size) };
}

function clearPaths({ best, tokenAt }: Paths, begin: number, end: number): void {
  best.fill(Number.NEGATIVE_INFINITY, begin, end);
  tokenAt.fill(-1, begin, end);
  if (begin === 0) best[0] = 0;
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
    const paths = pathsOf(text);
    clearPaths(paths, 0, text.length + 1);
    this.#advance(text, paths, 0, text.length);
    const first = ids.length;
    this.#collect(text, paths, { end: text.length, isAfterUnknown: false }, 0, ids);
    ids.reverseFrom(first);
  }

  *encodeWordSliced(text: string, ids: IdList, work: SliceCounter): Sliced<void> {
    const paths = pathsOf(text);
    for (let start = 0; start <= text.length; start += longLength) {
      clearPaths(paths, start, start + longLength);
      if (work.spend(longLength >> 4)) yield;
    }
    for (let start = 0; start < text.length;) {
      start = this.#advance(text, paths, start, start + longLength);
      if (work.spend(longLength >> 1)) yield;
    }
    const first = ids.length;
    const at = { end: text.length, isAfterUnknown: false };
    while (at.end > 0) {
      this.#collect(text, paths, at, Math.max(0, at.end - longLength), ids);
      if (work.spend(longLength >> 2)) yield;
    }
    ids.reverseFrom(first);
  }

  /** Extends the paths that end at the positions from `from` until the limit. Returns the next position. */
  #advance(text: string, { best, tokenAt, startAt }: Paths, from: number, limit: number): number {
    const { length } = text;
    let start = from;
    while (start < length && start < limit) {
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
    return start;
  }

  /** Pushes the ids of the best path, last id first, from its end down to a limit. */
  #collect(
    text: string,
    { tokenAt, startAt }: Paths,
    at: { end: number; isAfterUnknown: boolean },
    limit: number,
    ids: IdList,
  ): void {
    let { end, isAfterUnknown: afterUnknown } = at;
    for (; end > limit; end = startAt[end]!) {
      const token = tokenAt[end]!;
      const id = token < 0 ? this.#unkId : this.#ids[token]!;
      const unknown = id === this.#unkId;
      if (!unknown) ids.push(id);
      else if (!this.#pushBytes(text.slice(startAt[end]!, end), ids) && !afterUnknown) ids.push(id);
      afterUnknown = unknown;
    }
    at.end = end;
    at.isAfterUnknown = afterUnknown;
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
