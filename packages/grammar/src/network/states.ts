/** The states of a network while it is written, and the same as flat arrays. */
import type { WorkBudget } from '../work-budget.js';

/** Maximum number of states: repetitions are expanded, so that a short grammar can require very many. */
export const maxNetworkStates = 250_000;

/** Edges of all states: those of state `s` are `edges[starts[s]] .. edges[starts[s + 1] - 1]`. */
export interface EdgeList {
  readonly starts: Int32Array; // [numStates + 1]
  readonly edges: Int32Array;
}

/** Edges in the order in which they are added: the state, then the fields of the edge. */
class EdgeWriter {
  readonly #width: number;
  readonly #flat: number[] = [];

  /** @param width fields of an edge */
  constructor(width: number) {
    this.#width = width;
  }

  add(...stateAndFields: number[]): void {
    for (const value of stateAndFields) this.#flat.push(value);
  }

  *[Symbol.iterator](): Generator<readonly number[]> {
    const stride = this.#width + 1;
    for (let at = 0; at < this.#flat.length; at += stride) yield this.#flat.slice(at, at + stride);
  }

  /** Sorts the edges by state; those of a state stay in order. */
  sorted(numStates: number): EdgeList {
    const [flat, width] = [this.#flat, this.#width];
    const starts = new Int32Array(numStates + 1);
    for (let at = 0; at < flat.length; at += width + 1) starts[(flat[at] as number) + 1]! += width;
    for (let state = 0; state < numStates; state++) starts[state + 1]! += starts[state]!;
    const edges = new Int32Array((flat.length / (width + 1)) * width);
    const next = starts.slice();
    for (let at = 0; at < flat.length; at += width + 1) {
      const state = flat[at] as number;
      for (let field = 1; field <= width; field++) edges[next[state]!++] = flat[at + field] as number;
    }
    return { starts, edges };
  }
}

export class StateWriter {
  /** Consume a byte: first byte, last byte, target. */
  readonly moves: EdgeWriter = new EdgeWriter(3);
  /** Consume nothing: target. */
  readonly jumps: EdgeWriter = new EdgeWriter(1);
  /** Call a rule: rule, return state. */
  readonly calls: EdgeWriter = new EdgeWriter(2);
  readonly #budget: WorkBudget;
  #numStates = 0;

  constructor(budget: WorkBudget) {
    this.#budget = budget;
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
