/** The states of a network while it is written, and the same as flat arrays. */
import type { Sliced } from '@winnow/tensor';
import type { WorkBudget } from '../work-budget.js';

/** Maximum number of states: repetitions are expanded, so that a short grammar can require very many. */
export const maxNetworkStates = 250_000;

/** Edges of all states: those of state `s` are `edges[starts[s]] .. edges[starts[s + 1] - 1]`. */
export interface EdgeList {
  readonly starts: Int32Array; // [numStates + 1]
  readonly edges: Int32Array;
}

/** Edges of a chunk: arrays that grow would be copied as a whole. */
const edgesPerChunk = 2 ** 13;

/** Edges in the order in which they are added: the state, then the fields of the edge. */
class EdgeWriter {
  readonly #width: number;
  readonly #budget: WorkBudget;
  readonly #chunks: Int32Array[] = [];
  /** Values in the last chunk. */
  #length = Infinity;

  /** @param width fields of an edge */
  constructor(width: number, budget: WorkBudget) {
    this.#width = width;
    this.#budget = budget;
  }

  add(...stateAndFields: number[]): void {
    this.#budget.spend(1);
    const chunkLength = (this.#width + 1) * edgesPerChunk;
    if (this.#length >= chunkLength) {
      this.#chunks.push(new Int32Array(chunkLength));
      this.#length = 0;
    }
    const chunk = this.#chunks.at(-1) as Int32Array;
    for (const value of stateAndFields) chunk[this.#length++] = value;
  }

  /** The written part of each chunk. */
  chunks(): readonly Int32Array[] {
    const last = this.#chunks.length - 1;
    return this.#chunks.map((chunk, index) => (index === last ? chunk.subarray(0, this.#length) : chunk));
  }

  /** Sorts the edges by state; those of a state stay in order. */
  *sorted(numStates: number): Sliced<EdgeList> {
    const width = this.#width;
    const stride = width + 1;
    const chunks = this.chunks();
    const starts = new Int32Array(numStates + 1);
    for (const chunk of chunks) {
      for (let at = 0; at < chunk.length; at += stride) starts[(chunk[at] as number) + 1]! += width;
      this.#budget.spend(edgesPerChunk / 4);
      if (this.#budget.isSliceOver()) yield;
    }
    for (let state = 0; state < numStates; state++) starts[state + 1]! += starts[state]!;
    const edges = new Int32Array(starts[numStates]!);
    const next = starts.slice();
    for (const chunk of chunks) {
      for (let at = 0; at < chunk.length; at += stride) {
        const state = chunk[at] as number;
        for (let field = 1; field <= width; field++) edges[next[state]!++] = chunk[at + field] as number;
      }
      this.#budget.spend(edgesPerChunk / 4);
      if (this.#budget.isSliceOver()) yield;
    }
    return { starts, edges };
  }
}

export class StateWriter {
  /** Consume a byte: first byte, last byte, target. */
  readonly moves: EdgeWriter;
  /** Consume nothing: target. */
  readonly jumps: EdgeWriter;
  /** Call a rule: rule, return state. */
  readonly calls: EdgeWriter;
  readonly #budget: WorkBudget;
  #numStates = 0;

  constructor(budget: WorkBudget) {
    this.#budget = budget;
    this.moves = new EdgeWriter(3, budget);
    this.jumps = new EdgeWriter(1, budget);
    this.calls = new EdgeWriter(2, budget);
  }

  get numStates(): number {
    return this.#numStates;
  }

  /** @throws {CapacityError} for more than 250,000 states */
  add(): number {
    const needed = this.#numStates + 1;
    if (needed > maxNetworkStates) this.#budget.refuse('states', needed, maxNetworkStates, 'states');
    this.#budget.spend(10);
    return this.#numStates++;
  }
}
