/** Nondeterministic automata with the assertions `^` and `$`, and their determinization. */
import type { CodePoints } from '../code-points.js';
import type { Sliced } from '@winnow/tensor';
import type { WorkBudget } from '../work-budget.js';
import { checkSize, trim, type Dfa, type DfaEdge } from './dfa.js';

/** When an epsilon transition is allowed: always, only before the first character, only after the last one. */
export type When = 'always' | 'start' | 'end';

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
  *#split(states: readonly number[]): Generator<{ on: CodePoints; targets: number[] }> {
    const own = states.flatMap((state) => this.#moves[state] as { on: CodePoints; to: number }[]);
    this.#budget.spend(own.reduce((sum, { on }) => sum + 10 + 10 * on.length, 0));
    const places = new Set<number>();
    for (const { on } of own) for (const [first, last] of on) places.add(first).add(last + 1);
    const bounds = [...places].sort((a, b) => a - b);
    const events = new Map<number, { begins: number[]; ends: number[] }>(
      bounds.map((bound) => [bound, { begins: [], ends: [] }]),
    );
    for (const [index, { on }] of own.entries()) {
      for (const [first, last] of on) {
        events.get(first)?.begins.push(index);
        events.get(last + 1)?.ends.push(index);
      }
    }
    const groups = new Map<string, { on: [number, number][]; targets: number[] }>();
    const active = new Set<number>();
    for (const [i, bound] of bounds.entries()) {
      const { begins, ends } = events.get(bound) as { begins: number[]; ends: number[] };
      for (const index of ends) active.delete(index);
      for (const index of begins) active.add(index);
      if (active.size === 0) continue;
      this.#budget.spend(5 * active.size);
      const targets = [...new Set([...active].map((index) => (own[index] as { to: number }).to))].sort((a, b) => a - b);
      const key = targets.join();
      const group = groups.get(key) ?? { on: [], targets };
      groups.set(key, group);
      group.on.push([bound, (bounds[i + 1] as number) - 1]);
    }
    for (const { on, targets } of groups.values()) yield { on: joined(on), targets };
  }

  /** @param from first state @param to the accepting state */
  *determinize(from: number, to: number): Sliced<Dfa> {
    const first = this.#close([from], true, false);
    const index = new Map<string, number>([[`^${first.join()}`, 0]]);
    const sets = [first];
    const edges: DfaEdge[][] = [];
    const isAccepting: boolean[] = [];
    for (let state = 0; state < sets.length; state++) {
      if (this.#budget.isSliceOver()) yield;
      const set = sets[state] as number[];
      isAccepting.push(this.#close(set, state === 0, true).includes(to));
      const own: DfaEdge[] = [];
      for (const { on, targets } of this.#split(set)) {
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
    return trim({ edges, isAccepting });
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
