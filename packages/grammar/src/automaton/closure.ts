/** Epsilon closures of network states. The cost is linear in the edges that are followed, per set of stacks. */
import type { EdgeList } from '../network/states.js';
import type { Network } from '../network/network.js';
import type { WorkBudget } from '../work-budget.js';
import type { CounterStates } from './counter-states.js';
import { NumberHeap } from './number-heap.js';
import type { StackSet, StackSets } from './stack-sets.js';

/** The network states that the text so far may be in, with their stacks. */
export interface Configuration {
  /** Those from which a byte can follow, ascending. */
  readonly states: Int32Array;
  readonly stacks: readonly StackSet[];
  readonly isAccepting: boolean;
  /** What the numbers of states of counters in the stacks refer to. */
  readonly counterStates: CounterStates;
}

/** Closes sets of states over jumps, calls and returns that consume no byte. */
export class Closure {
  readonly #network: Network;
  readonly #stackSets: StackSets;
  readonly #counterStates: CounterStates;
  readonly #budget: WorkBudget;
  /** Per state: the last visit that saw it. */
  readonly #visits: Int32Array; // [numStates]
  #visit = 0;
  /** Per state: whether only bytes lead on from it. */
  readonly #isClosed: Uint8Array; // [numStates]
  readonly #found = new Map<number, StackSet>();
  /** Rules that are called here, with the stacks of all their calls so far. */
  readonly #called = new Map<number, StackSet>();
  readonly #queue = new NumberHeap();

  constructor(network: Network, stackSets: StackSets, counterStates: CounterStates, budget: WorkBudget) {
    this.#network = network;
    this.#counterStates = counterStates;
    this.#stackSets = stackSets;
    this.#budget = budget;
    this.#visits = new Int32Array(network.numStates);
    const { jumps, calls, canEnd } = network;
    this.#isClosed = canEnd.map((end, state) => (end === 1 || isAny(jumps, state) || isAny(calls, state) ? 0 : 1));
  }

  /** @param states those that the last byte led to, each with its stacks */
  close(states: ReadonlyMap<number, StackSet>): Configuration {
    const only = this.#onlyState(states);
    if (only !== undefined) return only;
    this.#found.clear();
    this.#called.clear();
    const items = new Map(states);
    const isAccepting = this.#return(items);
    const sources = new Map<StackSet, number[]>();
    for (const [state, stacks] of items) {
      const known = sources.get(stacks);
      if (known === undefined) sources.set(stacks, [state]);
      else known.push(state);
    }
    for (const [stacks, from] of sources) this.#expand(from, stacks);
    this.#call();
    return this.#configuration(isAccepting);
  }

  /** The closure of one state from which only bytes lead on, such as those inside a character. */
  #onlyState(states: ReadonlyMap<number, StackSet>): Configuration | undefined {
    if (states.size > 1) return undefined;
    for (const [state, stacks] of states) {
      if (this.#isClosed[state] === 0) return undefined;
      return { states: Int32Array.of(state), stacks: [stacks], isAccepting: false, counterStates: this.#counterStates };
    }
    return undefined;
  }

  /** The closure of the start of a text. */
  start(): Configuration {
    const { ruleStarts, root } = this.#network;
    return this.close(new Map([[ruleStarts[root]!, this.#stackSets.empty]]));
  }

  /**
   * Returns from the rules that may end here, and adds their return states. Each set of stacks is popped once.
   * @returns whether the whole text may end
   */
  #return(items: Map<number, StackSet>): boolean {
    const { canEnd } = this.#network;
    const ended = new Set<StackSet>();
    for (const [state, stacks] of items) if (canEnd[state] === 1) ended.add(stacks);
    let isAccepting = false;
    for (const { hasEmpty, returns, below } of ended) {
      isAccepting ||= hasEmpty;
      this.#budget.spend(2 + returns.length);
      for (let i = 0; i < returns.length; i++) {
        const state = returns[i] as number;
        if (this.#counterStates.isLabel(state)) {
          this.#count(state, below[i] as StackSet, ended);
          continue;
        }
        this.#add(items, state, below[i] as StackSet);
        if (canEnd[state] === 1) ended.add(below[i] as StackSet);
      }
    }
    return isAccepting;
  }

  /**
   * Counts an element of a counter that has ended.
   * @param counting stacks whose innermost members are states of counters
   * @param ended receives stacks of counters that may end here
   */
  #count(labelState: number, { returns, below }: StackSet, ended: Set<StackSet>): void {
    this.#budget.spend(2 + returns.length);
    for (let i = 0; i < returns.length; i++) {
      const state = this.#counterStates.after(returns[i] as number, labelState);
      if (this.#counterStates.canEnd(state)) ended.add(below[i] as StackSet);
      this.#enter(state, below[i] as StackSet);
    }
  }

  /** Calls what may come next in a state of a counter. */
  #enter(state: number, stacks: StackSet): void {
    const calls = this.#counterStates.callsOf(state);
    if (calls.length === 0) return;
    const inside = this.#stackSets.push(state, stacks);
    this.#budget.spend(calls.length);
    for (let at = 0; at < calls.length; at += 2) {
      const label = this.#counterStates.labelState(calls[at + 1] as number);
      this.#noteCall(calls[at] as number, this.#stackSets.push(label, inside));
    }
  }

  #add(to: Map<number, StackSet>, key: number, stacks: StackSet): void {
    const before = to.get(key);
    to.set(key, before === undefined ? stacks : this.#stackSets.union(before, stacks));
  }

  /** Enters the called rules in the order of their numbers, so that all calls of a rule are known when its turn comes. */
  #call(): void {
    for (let rule = this.#queue.pop(); rule !== undefined; rule = this.#queue.pop()) {
      this.#expand([this.#network.ruleStarts[rule]!], this.#called.get(rule) as StackSet);
    }
  }

  /** Follows jumps. Beside each call of a nullable rule, a jump skips it. */
  #expand(from: readonly number[], stacks: StackSet): void {
    const { jumps, moves, calls } = this.#network;
    const visits = this.#visits;
    const visit = ++this.#visit;
    const stack = [...from];
    for (const state of stack) visits[state] = visit;
    for (let state = stack.pop(); state !== undefined; state = stack.pop()) {
      if (isAny(moves, state)) this.#add(this.#found, state, stacks);
      if (isAny(calls, state)) this.#noteCalls(state, stacks);
      const end = jumps.starts[state + 1]!;
      this.#budget.spend(3 + end - jumps.starts[state]!);
      for (let at = jumps.starts[state]!; at < end; at++) {
        const target = jumps.edges[at]!;
        if (visits[target] !== visit) stack.push(target);
        visits[target] = visit;
      }
    }
  }

  #noteCalls(state: number, stacks: StackSet): void {
    const { starts, edges } = this.#network.calls;
    for (let at = starts[state]!; at < starts[state + 1]!; at += 2) {
      const [rule, returnState] = [edges[at]!, edges[at + 1]!];
      if (rule < 0) this.#enter(this.#counterStates.first(-1 - rule), stacks);
      else this.#noteCall(rule, returnState < 0 ? stacks : this.#stackSets.push(returnState, stacks));
    }
  }

  #noteCall(rule: number, stacks: StackSet): void {
    if (!this.#called.has(rule)) this.#queue.push(rule);
    this.#add(this.#called, rule, stacks);
  }

  #configuration(isAccepting: boolean): Configuration {
    const sorted = [...this.#found.keys()];
    if (sorted.length > 1) sorted.sort((a, b) => a - b);
    const states = Int32Array.from(sorted);
    const stacks = sorted.map((state) => this.#found.get(state) as StackSet);
    return { states, stacks, isAccepting, counterStates: this.#counterStates };
  }
}

function isAny({ starts }: EdgeList, state: number): boolean {
  return starts[state]! < starts[state + 1]!;
}
