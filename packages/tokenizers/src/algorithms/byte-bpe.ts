/** Byte-level BPE: each UTF-8 byte of a word is one printable character, and pairs are merged by rank. */
import type { SliceCounter, Sliced } from '@winnow/tensor';
import type { IdList } from '../tables/id-list.js';
import { WordCache } from '../tables/word-cache.js';
import { byteLevelCharacters } from '../text/byte-level.js';
import { longLength } from '../text/split.js';
import type { WordModel } from '../text/words.js';
import type { MergePair } from './bpe-rules.js';
import { BpeRules } from './bpe-rules.js';
import { Merger } from './merge.js';
import { SymbolTable } from './symbols.js';

export interface ByteBpeOptions {
  readonly texts: readonly string[];
  readonly idByText: ReadonlyMap<string, number>;
  readonly merges: Iterable<MergePair>;
  readonly numMerges: number;
  /** A word that is itself a token is emitted without merging (`ignore_merges`). */
  readonly ignoreMerges: boolean;
  /** Id for bytes without a token; `undefined`: they are dropped. */
  readonly unkId?: number | undefined;
}

export class ByteBpe implements WordModel {
  readonly #symbols: SymbolTable;
  readonly #ignoreMerges: boolean;
  readonly #unkId: number | undefined;
  readonly #byteSymbols: Int32Array;
  readonly #characters: readonly string[];
  readonly #cache = new WordCache();
  readonly #utf8 = new TextEncoder();
  readonly #maxTokenLength: number;
  // Scratch memory of words of at most `longLength` characters.
  readonly #bytes = new Uint8Array(longLength * 3);
  readonly #work = new Int32Array(longLength * 3);
  /** Number of merge steps so far, for complexity tests. */
  readonly merger: Merger;

  constructor(options: ByteBpeOptions) {
    this.#symbols = new SymbolTable(options.texts, options.idByText);
    this.#ignoreMerges = options.ignoreMerges;
    this.#unkId = options.unkId;
    this.#maxTokenLength = options.texts.reduce((max, { length }) => Math.max(max, length), 0);
    this.#characters = byteLevelCharacters();
    this.#byteSymbols = Int32Array.from(this.#characters, (character) => this.#symbols.intern(character));
    this.merger = new Merger(new BpeRules(this.#symbols, options.merges, options.numMerges));
  }

  encodeWord(word: string, ids: IdList): void {
    const known = this.#cache.get(word);
    if (known !== undefined) {
      ids.pushAll(known);
      return;
    }
    const before = ids.length;
    this.#encode(word, ids);
    this.#cache.set(word, ids, before);
  }

  #encode(word: string, ids: IdList): void {
    const work = this.#work;
    const count = this.#utf8.encodeInto(word, this.#bytes).written;
    if (this.#encodeWhole(this.#bytes, count, ids)) return;
    this.#readSymbols(this.#bytes, work, 0, count);
    this.#pushIds(work, 0, this.merger.merge(work, count), ids);
  }

  *encodeWordSliced(word: string, ids: IdList, slices: SliceCounter): Sliced<void> {
    const bytes = this.#utf8.encode(word);
    const count = bytes.length;
    if (this.#encodeWhole(bytes, count, ids)) return;
    const work = new Int32Array(count);
    for (let begin = 0; begin < count; begin += longLength) {
      this.#readSymbols(bytes, work, begin, Math.min(begin + longLength, count));
      if (slices.spend(longLength >> 4)) yield;
    }
    const live = yield* this.merger.mergeSliced(work, count, slices);
    for (let begin = 0; begin < live; begin += longLength) {
      this.#pushIds(work, begin, Math.min(begin + longLength, live), ids);
      if (slices.spend(longLength >> 4)) yield;
    }
  }

  /** Returns true if the word is a token and need not be merged. */
  #encodeWhole(bytes: Uint8Array, count: number, ids: IdList): boolean {
    if (!this.#ignoreMerges || count > this.#maxTokenLength) return false;
    const whole = this.#symbols.tokenOf(this.#standIns(bytes, count));
    if (whole >= 0) ids.push(whole);
    return whole >= 0;
  }

  #readSymbols(bytes: Uint8Array, work: Int32Array, begin: number, end: number): void {
    for (let index = begin; index < end; index++) work[index] = this.#byteSymbols[bytes[index]!]!;
  }

  #pushIds(work: Int32Array, begin: number, end: number, ids: IdList): void {
    for (let index = begin; index < end; index++) {
      if (this.#symbols.isToken(work[index]!)) ids.push(work[index]!);
      else this.#encodeUnknown(this.#symbols.textOf(work[index]!), ids);
    }
  }

  // A piece without an id falls back to its characters; a character without an id is unknown or dropped.
  #encodeUnknown(piece: string, ids: IdList): void {
    for (const character of piece) {
      const id = this.#symbols.tokenOf(character);
      if (id >= 0) ids.push(id);
      else if (this.#unkId !== undefined) ids.push(this.#unkId);
    }
  }

  #standIns(bytes: Uint8Array, count: number): string {
    let text = '';
    for (let index = 0; index < count; index++) text += this.#characters[bytes[index]!];
    return text;
  }
}

/**
 * Maximum number of bytes that one id of byte-level BPE stands for; undefined when some bytes have no id and are dropped.
 * @param isPlain whether a token is written as the text that it stands for, and not in the byte-level mapping
 */
export function maxBytesOfTokens(
  texts: readonly string[],
  idByText: ReadonlyMap<string, number>,
  isPlain: (id: number) => boolean,
): number | undefined {
  if (!byteLevelCharacters().every((character) => idByText.has(character))) return undefined;
  const encoder = new TextEncoder();
  return texts.reduce((max, text, id) => Math.max(max, isPlain(id) ? encoder.encode(text).length : text.length), 1);
}
