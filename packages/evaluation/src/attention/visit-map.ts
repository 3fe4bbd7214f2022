/** Keys visited by the queries of one head, and the softmax mass of visited and other keys, as a grid of cells. */
import type { Backend } from '@winnow/ops';
import { attend, exactWeights, type AttentionPolicy, type KeyVisit } from '@winnow/sparse-attention';
import type { AttentionCapture } from './capture.js';
import { checkOptions, type OptionNames } from '@winnow/tensor';

/** The map of one head; grids are row-major, queries by keys. */
export interface VisitMap {
  readonly name: string;
  readonly head: number;
  /** Cells per side. */
  readonly size: number;
  readonly numTokens: number;
  /** Visited pairs divided by possible (causal) pairs of the cell. */
  readonly visited: Float32Array;
  /** Pairs whose key is covered by a visited landmark, divided by possible pairs. */
  readonly summarized: Float32Array;
  /** Exact softmax mass of visited keys and of the others: mean over the queries of the cell. */
  readonly visitedMass: Float32Array;
  readonly missedMass: Float32Array;
  readonly pairs: number;
  readonly densePairs: number;
  /** Mean over queries of the mass of visited keys. */
  readonly mass: number;
}

export interface VisitMapOptions {
  readonly heads: readonly number[];
  /** Cells per side, at most one per token. Default: 64. */
  readonly size?: number;
  /** Default: the reference backend, which is slow. */
  readonly backend?: Backend | undefined;
}

const visitMapNames: OptionNames<VisitMapOptions> = { heads: true, size: true, backend: true };

/** Runs a policy over a captured layer and maps the selected heads. */
export async function createVisitMaps(
  policy: AttentionPolicy,
  capture: AttentionCapture,
  options: VisitMapOptions,
): Promise<VisitMap[]> {
  checkOptions(options, visitMapNames);
  const { q, k, v, scale, rotate, unrotatedQ, name } = capture;
  const { heads, backend } = options;
  const size = Math.max(1, Math.min(q.seqLen, options.size ?? 64));
  const groupSize = q.numHeads / k.numHeads;
  const grids = heads.map((head) => new Grid(head, size, q.seqLen));
  const isRemapped = policy.kind === 'streaming' && rotate !== undefined;
  const blockSize = policy.kind === 'subquadratic' ? policy.blockSize : 0;
  await attend(policy, isRemapped ? unrotatedQ : q, k, v, {
    ...{ scale, backend, rotate: isRemapped ? rotate : undefined },
    onVisit({ query, firstHead, numHeads, tokens, blocks }: KeyVisit) {
      for (const grid of grids) {
        if (grid.head < firstHead || grid.head >= firstHead + numHeads) continue;
        const weights = exactWeights(q.row(query, grid.head), k, Math.floor(grid.head / groupSize), query + 1, scale);
        grid.add(query, weights, tokens, blocks, blockSize);
      }
    },
  });
  return grids.map((grid) => grid.finish(name));
}

class Grid {
  readonly head: number;
  readonly #size: number;
  readonly #numTokens: number;
  readonly #cells: Readonly<Record<'possible' | 'visited' | 'summarized' | 'visitedMass' | 'missedMass', Float64Array>>;
  readonly #marks: Uint8Array;
  #pairs = 0;
  #mass = 0;

  constructor(head: number, size: number, numTokens: number) {
    this.head = head;
    this.#size = size;
    this.#numTokens = numTokens;
    const create = (): Float64Array => new Float64Array(size * size);
    this.#cells = {
      possible: create(),
      visited: create(),
      summarized: create(),
      visitedMass: create(),
      missedMass: create(),
    };
    this.#marks = new Uint8Array(numTokens);
  }

  add(query: number, weights: Float64Array, tokens: Int32Array, blocks: Int32Array, blockSize: number): void {
    const { possible, visited, summarized, visitedMass, missedMass } = this.#cells;
    const marks = this.#marks.fill(0);
    for (const block of blocks) marks.fill(2, block * blockSize, Math.min((block + 1) * blockSize, this.#numTokens));
    for (const token of tokens) marks[token] = 1;
    const row = this.#cell(query) * this.#size;
    for (let key = 0; key <= query; key++) {
      const cell = row + this.#cell(key);
      possible[cell] += 1;
      if (marks[key] === 2) summarized[cell] += 1;
      if (marks[key] === 1) {
        visited[cell] += 1;
        visitedMass[cell] += weights[key];
        this.#mass += weights[key];
      } else missedMass[cell] += weights[key];
    }
    this.#pairs += tokens.length + blocks.length;
  }

  finish(name: string): VisitMap {
    const size = this.#size;
    const { possible, visited, summarized, visitedMass, missedMass } = this.#cells;
    const shareOf = (grid: Float64Array): Float32Array =>
      Float32Array.from(grid, (value, cell) => (possible[cell] === 0 ? 0 : value / possible[cell]));
    const queriesOf = (cell: number): number => {
      const row = Math.floor(cell / size);
      return this.#edge(row + 1) - this.#edge(row);
    };
    const perQuery = (grid: Float64Array): Float32Array =>
      Float32Array.from(grid, (value, cell) => value / queriesOf(cell));
    const numTokens = this.#numTokens;
    return {
      name,
      head: this.head,
      size,
      numTokens,
      visited: shareOf(visited),
      summarized: shareOf(summarized),
      visitedMass: perQuery(visitedMass),
      missedMass: perQuery(missedMass),
      pairs: this.#pairs,
      densePairs: (numTokens * (numTokens + 1)) / 2,
      mass: this.#mass / numTokens,
    };
  }

  #cell(position: number): number {
    return Math.floor((position * this.#size) / this.#numTokens);
  }

  #edge(cell: number): number {
    return Math.ceil((cell * this.#numTokens) / this.#size);
  }
}
