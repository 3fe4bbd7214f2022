/** A trie over UTF-16 code units that finds the entries starting at a text position. */
import { PairTable } from './pair-table.js';

export class Trie {
  readonly #edges: PairTable;
  readonly #values: number[] = [-1];

  constructor(expectedEntries = 16) {
    this.#edges = new PairTable(expectedEntries * 3);
  }

  /** Root node for `step`. */
  static readonly root = 0;

  /** Adds an entry. An existing entry keeps its value. */
  add(text: string, value: number): void {
    let node = Trie.root;
    for (let index = 0; index < text.length; index++) {
      const unit = text.charCodeAt(index);
      const edge = this.#edges.find(node, unit);
      if (edge >= 0) {
        node = this.#edges.value(edge);
      } else {
        const child = this.#values.push(-1) - 1;
        this.#edges.add(node, unit, child);
        node = child;
      }
    }
    if (this.#values[node] === -1) this.#values[node] = value;
  }

  /** The child of a node along a code unit, or -1. */
  step(node: number, unit: number): number {
    const edge = this.#edges.find(node, unit);
    return edge < 0 ? -1 : this.#edges.value(edge);
  }

  /** Value of the entry that ends at a node, or -1. */
  valueAt(node: number): number {
    return this.#values[node]!;
  }

  /** Length of the longest entry that starts at `start` and ends at or before `end`, or 0. */
  longestMatch(text: string, start: number, end: number = text.length): number {
    let node = Trie.root;
    let longest = 0;
    for (let index = start; index < end; index++) {
      node = this.step(node, text.charCodeAt(index));
      if (node < 0) break;
      if (this.#values[node]! >= 0) longest = index + 1 - start;
    }
    return longest;
  }
}
