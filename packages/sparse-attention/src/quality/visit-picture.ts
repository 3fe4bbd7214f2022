/** The keys that queries attended to, as data for a plot, and the pairs of each query. */
import type { KeyVisit } from '../layer/options.js';

/** Counts visits per query and, in cells of a grid, per query and key. */
export class VisitPicture {
  /** Tokens visited per query position, without landmarks, for the selected heads. */
  readonly tokenPairs: Float64Array;
  /** Landmarks visited per query position. */
  readonly blockPairs: Float64Array;
  /** Queries by keys, row-major: share of the pairs of each cell that was visited, once `shares` is called. */
  readonly size: number;
  readonly #cells: Float64Array;
  readonly #numTokens: number;
  readonly #head: number;

  /** `head` selects a query head; `size` is the number of cells per side, at most `numTokens`. */
  constructor({
    numTokens,
    head = 0,
    size = Math.min(numTokens, 256),
  }: {
    numTokens: number;
    head?: number;
    size?: number;
  }) {
    this.#numTokens = numTokens;
    this.#head = head;
    this.size = size;
    this.tokenPairs = new Float64Array(numTokens);
    this.blockPairs = new Float64Array(numTokens);
    this.#cells = new Float64Array(size * size);
  }

  /** Pass it to `attend` as `onVisit`. */
  readonly add = ({ query, firstHead, numHeads, tokens, blocks }: KeyVisit): void => {
    if (this.#head < firstHead || this.#head >= firstHead + numHeads) return;
    this.tokenPairs[query] += tokens.length;
    this.blockPairs[query] += blocks.length;
    const { size } = this;
    const row = Math.floor((query * size) / this.#numTokens) * size;
    for (const token of tokens) this.#cells[row + Math.floor((token * size) / this.#numTokens)] += 1;
  };

  /** Share of visited pairs per cell, `[size, size]`, 0 to 1 (cells on the diagonal also contain future pairs). */
  shares(): Float32Array {
    const { size } = this;
    const edge = (cell: number): number => Math.ceil((cell * this.#numTokens) / size);
    return Float32Array.from(this.#cells, (count, i) => {
      const [row, column] = [Math.floor(i / size), i % size];
      const pairs = (edge(row + 1) - edge(row)) * (edge(column + 1) - edge(column));
      return pairs === 0 ? 0 : count / pairs;
    });
  }
}
