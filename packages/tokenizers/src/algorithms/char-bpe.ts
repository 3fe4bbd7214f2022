/**
 * BPE over characters: SentencePiece BPE (rank of a merge = score of its result) and ranked merges on raw text.
 * Characters outside the vocabulary become their bytes, or the unknown token.
 */
import type { SliceCounter, Sliced } from '@winnow/tensor';
import type { IdList } from '../tables/id-list.js';
import { PairTable } from '../tables/pair-table.js';
import { WordCache } from '../tables/word-cache.js';
import { longLength } from '../text/split.js';
import type { WordModel } from '../text/words.js';
import type { MergeRules } from './merge.js';
import { Merger } from './merge.js';
import type { SymbolTable, UnknownRule } from './symbols.js';

/** Number of pairs that `ScoreRules` caches before it clears its table. */
const MAX_PAIRS = 1 << 18;

/** Number of symbols whose bytes are kept. */
const MAX_BYTE_SYMBOLS = 1 << 14;

/** SentencePiece: two neighbors merge when their concatenation is a token, best score first. */
export class ScoreRules implements MergeRules {
  readonly #symbols: SymbolTable;
  // Rank of each token: position of its score among the distinct scores, best first.
  readonly #ranks: Int32Array;
  readonly #maxLength: number;
  // Cached pairs: value = rank or -1, extra = token.
  readonly #pairs = new PairTable(1024);

  /** @param scores one per token; all equal when absent */
  constructor(symbols: SymbolTable, scores: ArrayLike<number> | undefined) {
    this.#symbols = symbols;
    const ranks = new Int32Array(symbols.numTokens);
    let maxLength = 0;
    for (let id = 0; id < symbols.numTokens; id++) maxLength = Math.max(maxLength, symbols.textOf(id).length);
    this.#maxLength = maxLength;
    if (scores !== undefined) {
      const distinct = Float32Array.from(new Set(Float32Array.from(scores)))
        .sort()
        .reverse();
      const rankOf = new Map<number, number>();
      distinct.forEach((score, rank) => rankOf.set(score, rank));
      for (let id = 0; id < ranks.length; id++) ranks[id] = rankOf.get(Math.fround(scores[id]!))!;
    }
    this.#ranks = ranks;
  }

  rank(left: number, right: number): number {
    return this.#pairs.value(this.#find(left, right));
  }

  merged(left: number, right: number): number {
    return this.#pairs.extra(this.#find(left, right));
  }

  #find(left: number, right: number): number {
    const known = this.#pairs.find(left, right);
    if (known >= 0) return known;
    const leftText = this.#symbols.textOf(left);
    const rightText = this.#symbols.textOf(right);
    const fits = leftText.length + rightText.length <= this.#maxLength;
    const token = fits ? this.#symbols.tokenOf(leftText + rightText) : -1;
    if (this.#pairs.size >= MAX_PAIRS) this.#pairs.clear();
    return this.#pairs.add(left, right, token < 0 ? -1 : this.#ranks[token]!, token);
  }
}

/** Affixes that mark the position of a character in its word. */
export interface Affixes {
  /** Before each character but the first: `##`. */
  readonly prefix: string;
  /** After the last one: `</w>`. */
  readonly suffix: string;
}

export class CharBpe implements WordModel {
  readonly #symbols: SymbolTable;
  readonly #unknown: UnknownRule;
  readonly #ignoreMerges: boolean;
  readonly #affixes: Affixes | undefined;
  readonly #cache: WordCache | undefined;
  // Symbol of each code point below 128, or -1 before its first use.
  readonly #ascii = new Int32Array(128).fill(-1);
  readonly #utf8 = new TextEncoder();
  /** Byte tokens by symbol: encoding each occurrence would leave millions of small arrays. */
  readonly #byteTokens = new Map<number, readonly number[]>();
  /** Number of merge steps so far, for complexity tests. */
  readonly merger: Merger;

  /**
   * @param cacheWords whether to cache words: worthwhile when `encodeWord` gets short words that repeat, not whole
   *   texts
   */
  constructor(
    symbols: SymbolTable,
    rules: MergeRules,
    unknown: UnknownRule,
    options: { readonly ignoreMerges?: boolean; readonly cacheWords?: boolean; readonly affixes?: Affixes } = {},
  ) {
    this.#symbols = symbols;
    this.#unknown = unknown;
    this.#ignoreMerges = options.ignoreMerges ?? false;
    this.#affixes = options.affixes;
    this.#cache = options.cacheWords === true ? new WordCache() : undefined;
    this.merger = new Merger(rules);
  }

  encodeWord(word: string, ids: IdList): void {
    const known = this.#cache?.get(word);
    if (known !== undefined) {
      ids.pushAll(known);
      return;
    }
    const before = ids.length;
    const whole = this.#ignoreMerges ? this.#symbols.tokenOf(word) : -1;
    if (whole >= 0) ids.push(whole);
    else this.#merge(word, ids);
    this.#cache?.set(word, ids, before);
  }

  *encodeWordSliced(word: string, ids: IdList, slices: SliceCounter): Sliced<void> {
    const whole = this.#ignoreMerges ? this.#symbols.tokenOf(word) : -1;
    if (whole >= 0) {
      ids.push(whole);
      return;
    }
    const work = new Int32Array(word.length);
    const read = { at: 0, count: 0 };
    while (this.#readSymbols(word, work, read, longLength)) if (slices.spend(longLength >> 2)) yield;
    const live = yield* this.merger.mergeSliced(work, read.count, slices);
    let afterUnknown = false;
    for (let begin = 0; begin < live; begin += longLength) {
      afterUnknown = this.#pushIds(work, begin, Math.min(begin + longLength, live), afterUnknown, ids);
      if (slices.spend(longLength >> 2)) yield;
    }
  }

  #merge(word: string, ids: IdList): void {
    const work = new Int32Array(word.length);
    const read = { at: 0, count: 0 };
    this.#readSymbols(word, work, read, word.length);
    this.#pushIds(work, 0, this.merger.merge(work, read.count), false, ids);
  }

  /** Reads up to `maxCount` more symbols of a word. Returns false at the end of the word. */
  #readSymbols(word: string, work: Int32Array, read: { at: number; count: number }, maxCount: number): boolean {
    const end = read.count + maxCount;
    let { at, count } = read;
    for (; at < word.length && count < end; count++) {
      const unit = word.charCodeAt(at);
      if (unit < 128 && this.#affixes === undefined) {
        if (this.#ascii[unit] === -1) this.#ascii[unit] = this.#symbols.intern(String.fromCharCode(unit));
        work[count] = this.#ascii[unit]!;
        at++;
      } else {
        const character = String.fromCodePoint(word.codePointAt(at)!);
        const isLast = at + character.length === word.length;
        work[count] = this.#symbols.intern(this.#written(character, at === 0, isLast));
        at += character.length;
      }
    }
    read.at = at;
    read.count = count;
    return at < word.length;
  }

  #written(character: string, isFirst: boolean, isLast: boolean): string {
    if (this.#affixes === undefined) return character;
    const { prefix, suffix } = this.#affixes;
    return (isFirst ? '' : prefix) + character + (isLast ? suffix : '');
  }

  /** @returns whether the last symbol is unknown */
  #pushIds(work: Int32Array, begin: number, end: number, isAfterUnknown: boolean, ids: IdList): boolean {
    let afterUnknown = isAfterUnknown;
    for (let index = begin; index < end; index++) {
      const symbol = work[index]!;
      if (this.#symbols.isToken(symbol)) {
        ids.push(symbol);
        afterUnknown = false;
      } else if (!this.#pushBytes(symbol, ids)) {
        if (this.#unknown.unkId !== undefined && !(afterUnknown && this.#unknown.fuse)) ids.push(this.#unknown.unkId);
        afterUnknown = true;
      } else {
        afterUnknown = false;
      }
    }
    return afterUnknown;
  }

  /** Pushes the byte tokens of a symbol if every byte has one. */
  #pushBytes(symbol: number, ids: IdList): boolean {
    let bytes = this.#byteTokens.get(symbol);
    if (bytes === undefined) {
      if (this.#byteTokens.size >= MAX_BYTE_SYMBOLS) this.#byteTokens.clear();
      this.#byteTokens.set(symbol, (bytes = this.#byteTokensOf(symbol)));
    }
    ids.pushAll(bytes);
    return bytes.length > 0;
  }

  /** Empty if a byte lacks a token. */
  #byteTokensOf(symbol: number): readonly number[] {
    const { byteIds } = this.#unknown;
    if (byteIds === undefined) return [];
    const ids = Array.from(this.#utf8.encode(this.#symbols.textOf(symbol)), (byte) => byteIds[byte]!);
    return ids.every((id) => id >= 0) ? ids : [];
  }
}
