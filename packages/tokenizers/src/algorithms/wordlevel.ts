/** WordLevel: each word is one token, or unknown. */
import type { SliceCounter, Sliced } from '@winnow/tensor';
import type { IdList } from '../tables/id-list.js';
import type { WordModel } from '../text/words.js';

export class WordLevel implements WordModel {
  readonly #tokens: ReadonlyMap<string, number>;
  readonly #unkId: number;

  constructor(tokens: ReadonlyMap<string, number>, unkId: number) {
    this.#tokens = tokens;
    this.#unkId = unkId;
  }

  encodeWord(word: string, ids: IdList): void {
    ids.push(this.#tokens.get(word) ?? this.#unkId);
  }

  *encodeWordSliced(word: string, ids: IdList, work: SliceCounter): Sliced<void> {
    if (work.spend(word.length)) yield;
    this.encodeWord(word, ids);
  }
}
