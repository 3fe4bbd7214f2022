/** Merge rules of a BPE vocabulary: ranks by position in the list of merges. */
import { PairTable } from '../tables/pair-table.js';
import type { MergeRules } from './merge.js';
import type { SymbolTable } from './symbols.js';

/** A merge of two token texts. */
export type MergePair = readonly [left: string, right: string];

export class BpeRules implements MergeRules {
  readonly #table: PairTable;

  /**
   * @param merges best first; the first of duplicate pairs wins
   * @param prefixLength characters at the start of a right token that its merge does not keep
   */
  constructor(symbols: SymbolTable, merges: Iterable<MergePair>, numMerges: number, prefixLength = 0) {
    this.#table = new PairTable(numMerges);
    let rank = 0;
    for (const [leftText, rightText] of merges) {
      const left = symbols.intern(leftText);
      const right = symbols.intern(rightText);
      const mergedText = leftText + rightText.slice(prefixLength);
      if (this.#table.find(left, right) < 0) this.#table.add(left, right, rank, symbols.intern(mergedText));
      rank++;
    }
  }

  rank(left: number, right: number): number {
    const at = this.#table.find(left, right);
    return at < 0 ? -1 : this.#table.value(at);
  }

  merged(left: number, right: number): number {
    return this.#table.extra(this.#table.find(left, right));
  }
}
