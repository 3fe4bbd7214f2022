/**
 * Hash-consed sets of call stacks: a stack is the list of return states of the active rules, innermost first. A set is
 * stored as a map from the innermost return state to the set of stacks below it, so that stacks share common parts and
 * memory grows with branches plus levels instead of branches times levels. Equal sets are the same object.
 */
import type { WorkBudget } from '../work-budget.js';

/** Maximum stack depth, which bounds how deeply brackets may be nested. */
const maxDepth = 2000;

export interface StackSet {
  readonly id: number;
  /** The empty stack is a member. */
  readonly hasEmpty: boolean;
  /** Return states, ascending, each with the set of stacks below it. */
  readonly returns: readonly number[];
  readonly below: readonly StackSet[];
  /** Depth of the deepest stack. */
  readonly depth: number;
}

export class StackSets {
  /** The set that contains only the empty stack. */
  readonly empty: StackSet;
  readonly #budget: WorkBudget;
  /** The sets of no or several innermost return states. */
  readonly #sets = new Map<string, StackSet>();
  #numSets = 0;
  readonly #unions = new Map<string, StackSet>();
  /** Sets of one innermost return state: by the id of the set below, then by the return state. */
  readonly #pushed: Map<number, StackSet>[] = [];
  #numEntries = 0;

  constructor(budget: WorkBudget) {
    this.#budget = budget;
    this.empty = this.#make(true, [], []);
  }

  /** Entries of all sets and unions so far. */
  get size(): number {
    return this.#numEntries;
  }

  /** Pushes a return state onto every member. @throws {CapacityError} for stacks of more than 2000 */
  push(returnState: number, below: StackSet): StackSet {
    this.#budget.spend(5);
    let pushed = this.#pushed[below.id];
    if (pushed === undefined) this.#pushed[below.id] = pushed = new Map();
    let set = pushed.get(returnState);
    if (set === undefined) pushed.set(returnState, (set = this.#add(false, [returnState], [below])));
    return set;
  }

  union(a: StackSet, b: StackSet): StackSet {
    if (a === b) return a;
    const key = a.id < b.id ? `${a.id},${b.id}` : `${b.id},${a.id}`;
    const known = this.#unions.get(key);
    if (known !== undefined) return known;
    const returns: number[] = [];
    const below: StackSet[] = [];
    for (let i = 0, j = 0; i < a.returns.length || j < b.returns.length;) {
      const left = a.returns[i] ?? Infinity;
      const right = b.returns[j] ?? Infinity;
      returns.push(Math.min(left, right));
      if (left === right) below.push(this.union(a.below[i++] as StackSet, b.below[j++] as StackSet));
      else below.push((left < right ? a.below[i++] : b.below[j++]) as StackSet);
    }
    const set = this.#make(a.hasEmpty || b.hasEmpty, returns, below);
    this.#unions.set(key, set);
    this.#numEntries++;
    return set;
  }

  #make(hasEmpty: boolean, returns: readonly number[], below: readonly StackSet[]): StackSet {
    if (!hasEmpty && returns.length === 1) return this.push(returns[0] as number, below[0] as StackSet);
    this.#budget.spend(10 + 5 * returns.length);
    let key = hasEmpty ? 'e' : '';
    for (let i = 0; i < returns.length; i++) key += `${returns[i]}:${(below[i] as StackSet).id},`;
    let set = this.#sets.get(key);
    if (set === undefined) this.#sets.set(key, (set = this.#add(hasEmpty, returns, below)));
    return set;
  }

  #add(hasEmpty: boolean, returns: readonly number[], below: readonly StackSet[]): StackSet {
    const depth = below.reduce((highest, { depth: own }) => Math.max(highest, own + 1), 0);
    if (depth > maxDepth) this.#budget.refuse('nested rules', depth, maxDepth, 'levels');
    this.#numEntries += 2 + 2 * returns.length;
    return { id: this.#numSets++, hasEmpty, returns, below, depth };
  }
}
