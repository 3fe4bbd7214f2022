/** Nondeterministic automata with the assertions `^` and `$`, and their determinization. */
import type { CodePoints } from '../code-points.js';
import type { Sliced } from '@winnow/tensor';
import type { WorkBudget } from '../work-budget.js';
import { checkSize, trim, type Dfa, type DfaEdge } from './dfa.js';

/** When an epsilon transition is allowed: always, only before the first character, only after the last one. */
export type When = 'always' | 'start' | 'end';

/** Where sets of characters begin and end, by their indices. */
interface Bound {
  readonly place: number;
  readonly begins: number[];
  readonly ends: number[];
}

/** States are numbered from 0; moves consume a character, jumps do not. */
export class Nfa {
  readonly #moves: { on: CodePoints; to: number }[][] = [];
  readonly #jumps: { to: number; when: When }[][] = [];
  readonly #budget: WorkBudget;

  constructor(budget: WorkBudget) {
    this.#budget = budget;
  }

  add(): number {
    checkSize(this.#moves.length, this.#budget);
    this.#budget.spend(10);
    this.#jumps.push([]);
    return this.#moves.push([]) - 1;
  }

  move(from: number, on: CodePoints, to: number): void {
    if (on.length > 0) this.#moves[from]?.push({ on, to });
  }

  jump(from: number, to: number, when: When = 'always'): void {
    this.#jumps[from]?.push({ to, when });
  }

  #close(from: readonly number[], isStart: boolean, isEnd: boolean): number[] {
    const seen = new Set(from);
    const queue = [...from];
    for (let state = queue.pop(); state !== undefined; state = queue.pop()) {
      this.#budget.spend(5);
      for (const { to, when } of this.#jumps[state] as { to: number; when: When }[]) {
        if ((when === 'start' && !isStart) || (when === 'end' && !isEnd) || seen.has(to)) continue;
        seen.add(to);
        queue.push(to);
      }
    }
    return [...seen].sort((a, b) => a - b);
  }

  /** Partitions characters by the states they lead to. */
  *#split(states: readonly number[]): Sliced<readonly { on: CodePoints; targets: number[] }[]> {
    const own = states.flatMap((state) => this.#moves[state] as { on: CodePoints; to: number }[]);
    const bounds = yield* this.#boundsOf(own.map(({ on }) => on));
    const groups = new Map<string, { on: [number, number][]; targets: number[] }>();
    const active = new Set<number>();
    for (const [i, { place, begins, ends }] of bounds.entries()) {
      for (const index of ends) active.delete(index);
      for (const index of begins) active.add(index);
      if (active.size === 0) continue;
      this.#budget.spend(5 * active.size);
      if (this.#budget.isSliceOver()) yield;
      const targets = [...new Set([...active].map((index) => (own[index] as { to: number }).to))].sort((a, b) => a - b);
      const key = targets.join();
      const group = groups.get(key) ?? { on: [], targets };
      groups.set(key, group);
      group.on.push([place, (bounds[i + 1] as Bound).place - 1]);
    }
    return Array.from(groups.values(), ({ on, targets }) => ({ on: joined(on), targets }));
  }

  /** The characters at which sets begin, or before which they end, in order. */
  *#boundsOf(sets: readonly CodePoints[]): Sliced<readonly Bound[]> {
    const bounds = new Map<number, Bound>();
    const at = (place: number): Bound => {
      const bound = bounds.get(place) ?? { place, begins: [], ends: [] };
      bounds.set(place, bound);
      return bound;
    };
    for (const [index, set] of sets.entries()) {
      this.#budget.spend(10 + 10 * set.length);
      if (this.#budget.isSliceOver()) yield;
      for (const [first, last] of set) {
        at(first).begins.push(index);
        at(last + 1).ends.push(index);
      }
    }
    return [...bounds.values()].sort((a, b) => a.place - b.place);
  }

  /** @param from first state @param to the accepting state */
  *determinize(from: number, to: number): Sliced<Dfa> {
    const first = this.#close([from], true, false);
    const index = new Map<string, number>([[`^${first.join()}`, 0]]);
    const sets = [first];
    const edges: DfaEdge[][] = [];
    const isAccepting: boolean[] = [];
    for (let state = 0; state < sets.length; state++) {
      const set = sets[state] as number[];
      isAccepting.push(this.#close(set, state === 0, true).includes(to));
      const own: DfaEdge[] = [];
      for (const { on, targets } of yield* this.#split(set)) {
        if (this.#budget.isSliceOver()) yield;
        const next = this.#close(targets, false, false);
        const key = next.join();
        let target = index.get(key);
        if (target === undefined) {
          target = sets.push(next) - 1;
          checkSize(target, this.#budget);
          index.set(key, target);
        }
        own.push({ on, target });
      }
      edges.push(own);
    }
    return yield* trim({ edges, isAccepting }, this.#budget);
  }
}

/** Ascending ranges with adjacent ones merged. */
function joined(ranges: readonly [number, number][]): CodePoints {
  const result: [number, number][] = [];
  for (const [first, last] of ranges) {
    const previous = result.at(-1);
    if (previous !== undefined && previous[1] + 1 === first) previous[1] = last;
    else result.push([first, last]);
  }
  return result;
}
