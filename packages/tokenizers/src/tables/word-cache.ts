/** Caches the ids of words: natural text repeats them, and merging is the expensive part. */
import type { IdList } from './id-list.js';

/** Longer words rarely repeat, and would leave the memory of a full cache unbounded. */
const MAX_WORD_LENGTH = 48;
/** Maximum number of words; a full cache is cleared. */
const MAX_WORDS = 1 << 16;

export class WordCache {
  readonly #ids = new Map<string, Int32Array>();

  get(word: string): Int32Array | undefined {
    return word.length > MAX_WORD_LENGTH ? undefined : this.#ids.get(word);
  }

  /** Stores the ids of `list` from `start` on. */
  set(word: string, list: IdList, start: number): void {
    if (word.length > MAX_WORD_LENGTH) return;
    if (this.#ids.size >= MAX_WORDS) this.#ids.clear();
    this.#ids.set(word, list.values.slice(start, list.length));
  }
}
