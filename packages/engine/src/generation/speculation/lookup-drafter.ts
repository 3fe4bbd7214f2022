/**
 * Drafts by lookup: finds the longest earlier occurrence of the last tokens in prompt and output, and proposes what followed it
 * there (prompt lookup decoding, arXiv:2304.04487 §3). Needs no model and pays off where a text repeats itself.
 */
import { noClass, type Drafter } from './drafter.js';

/** Minimum length of a match: after a single token, too many continuations are possible. */
const minMatch = 2;
/** Matches are compared up to this length; the latest of those that reach it wins. */
const maxMatch = 32;

export class LookupDrafter implements Drafter {
  readonly #vocabSize: number;
  #tokens = new Int32Array(256);
  #numTokens = 0;
  /** By pair of tokens: the index at which its latest occurrence ends. */
  readonly #latest = new Map<number, number>();
  /** Where the pair that ends at an index ended before; -1: nowhere. */
  #previous = new Int32Array(256);
  /** Where the match that was found ends, and its length; 0: none was. */
  #matchEnd = 0;
  #matchLength = 0;
  readonly #drafted: number[] = [];

  constructor(vocabSize: number) {
    this.#vocabSize = vocabSize;
  }

  accept(tokenId: number): void {
    const index = this.#numTokens++;
    if (index === this.#tokens.length) {
      this.#tokens = doubled(this.#tokens);
      this.#previous = doubled(this.#previous);
    }
    this.#tokens[index] = tokenId;
    if (index === 0) return;
    const pair = (this.#tokens[index - 1] as number) * this.#vocabSize + tokenId;
    this.#previous[index] = this.#latest.get(pair) ?? -1;
    this.#latest.set(pair, index);
  }

  find(): number {
    this.#findLongest();
    return this.#matchLength === 0 ? noClass : Math.floor(Math.log2(this.#matchLength));
  }

  draft(count: number): readonly number[] {
    const drafted = this.#drafted;
    drafted.length = 0;
    for (let source = this.#matchEnd + 1; drafted.length < count; source++) {
      // a match may overlap the end of the text: then the draft repeats itself
      drafted.push((source < this.#numTokens ? this.#tokens[source] : drafted[source - this.#numTokens]) as number);
    }
    return drafted;
  }

  /** Finds the longest earlier occurrence of the last tokens, the latest of equally long ones. */
  #findLongest(): void {
    this.#matchLength = 0;
    const last = this.#numTokens - 1;
    if (last < 1) return;
    for (let index = this.#previous[last] as number; index >= 0; index = this.#previous[index] as number) {
      const length = this.#lengthAt(index, last);
      if (length <= this.#matchLength) continue;
      this.#matchEnd = index;
      this.#matchLength = length;
      if (length === maxMatch) break;
    }
  }

  #lengthAt(index: number, last: number): number {
    const limit = Math.min(maxMatch, index + 1);
    let length = minMatch;
    while (length < limit && this.#tokens[index - length] === this.#tokens[last - length]) length++;
    return length;
  }
}

function doubled(values: Int32Array<ArrayBuffer>): Int32Array<ArrayBuffer> {
  const larger = new Int32Array(2 * values.length);
  larger.set(values);
  return larger;
}
