/**
 * Runs a network as a lazily built deterministic automaton: a state is the set of all network states that the text so
 * far may be in, each with its possible call stacks. Transitions are cached in a table, so that a repeated step is a
 * single lookup.
 */
import { invariant } from '@winnow/tensor';
import type { Network } from '../network/network.js';
import { WorkBudget } from '../work-budget.js';
import { Closure, type Configuration } from './closure.js';
import { CounterStates } from './counter-states.js';
import { StackSets, type StackSet } from './stack-sets.js';

/** No text with this prefix can match. */
export const deadState = -1;
const unknownState = -2;

/** Number of states beyond which all states except those in use are discarded. */
const defaultMaxStates = 20_000;
/**
 * Memory beyond which they are discarded, in entries of about 20 bytes: states of configurations, stacks, and
 * transitions.
 */
const maxEntries = 4_000_000;
/** How far the cache may exceed these limits before it can be trimmed. */
const hardFactor = 4;
/** Steps of one mask or one token, each a few tens of nanoseconds. */
const maxStepsPerCall = 2_000_000;

/** Network states with their stacks, and the state of their closure. */
interface ClosedTargets {
  readonly targets: ReadonlyMap<number, StackSet>;
  readonly state: number;
}

export class Automaton {
  readonly classOfSymbol: Uint16Array; // [257 + number of token ids]
  readonly numClasses: number;
  readonly #network: Network;
  readonly #maxStates: number;
  readonly #budget = new WorkBudget('grammar', { maxSteps: maxStepsPerCall });
  #stackSets!: StackSets;
  #counterStates!: CounterStates;
  #closure!: Closure;
  #known: Configuration[] = [];
  /** States by the hash of their configuration. */
  #index = new Map<number, number[]>();
  #table = new Int32Array(0);
  #numEntries = 0;
  #epoch = 0;
  /** Closures of the targets of the state that was last stepped from, by hash. */
  readonly #closedTargets = new Map<number, ClosedTargets[]>();
  #closedFrom = deadState;
  #startState!: number;

  constructor(network: Network, maxStates: number = defaultMaxStates) {
    this.#network = network;
    this.#maxStates = maxStates;
    this.classOfSymbol = network.classOfSymbol;
    this.numClasses = network.symbolOfClass.length;
    this.#begin();
  }

  /**
   * Transitions by state and class: a state, `deadState`, or a smaller value for one that `step` has to compute. The
   * table may be reallocated by `step`: read it again after each call.
   */
  get table(): Int32Array {
    return this.#table; // [capacity, numClasses]
  }

  /** Work of this mask or token so far. */
  get numSteps(): number {
    return this.#budget.numSteps;
  }

  get startState(): number {
    return this.#startState;
  }

  /** Changes when states were discarded, which invalidates all state numbers. */
  get epoch(): number {
    return this.#epoch;
  }

  isAccepting(state: number): boolean {
    return state >= 0 && (this.#known[state] as Configuration).isAccepting;
  }

  /** No byte can follow. */
  isEnd(state: number): boolean {
    return state < 0 || (this.#known[state] as Configuration).states.length === 0;
  }

  /** The contents of a state, which remain valid across epochs. */
  configuration(state: number): Configuration {
    const dead = { states: new Int32Array(0), stacks: [], isAccepting: false, counterStates: this.#counterStates };
    return this.#known[state] ?? dead;
  }

  stateOf(configuration: Configuration): number {
    const adopted = new Map<StackSet, StackSet>();
    const stacks = configuration.stacks.map((set) => this.#adopt(set, configuration.counterStates, adopted));
    return this.#numberOf({ ...configuration, stacks, counterStates: this.#counterStates });
  }

  /**
   * Begins a mask or a token, with a new work budget. Trims the cache when it is too large; callers that hold state
   * numbers across this call must check `epoch`.
   */
  begin(): void {
    this.#budget.reset();
    if (this.#known.length <= this.#maxStates && this.#size() <= maxEntries) return;
    this.#epoch++;
    this.#begin();
  }

  step(state: number, symbolClass: number): number {
    if (state === deadState) return deadState;
    const place = state * this.numClasses + symbolClass;
    const ready = this.#table[place] as number;
    if (ready !== unknownState) return ready;
    const targets = this.#targets(
      this.#known[state] as Configuration,
      this.#network.symbolOfClass[symbolClass] as number,
    );
    const next = this.#closed(state, targets);
    this.#table[place] = next;
    return next;
  }

  /** The state of the closure of these targets, cached because many symbols lead from a state to the same targets. */
  #closed(from: number, targets: ReadonlyMap<number, StackSet>): number {
    if (targets.size === 0) return deadState;
    if (this.#closedFrom !== from) this.#closedTargets.clear();
    this.#closedFrom = from;
    const hash = hashOfTargets(targets);
    const candidates = this.#closedTargets.get(hash) ?? [];
    for (const known of candidates) {
      if (isSameMap(known.targets, targets)) return known.state;
      this.#budget.spend(1);
    }
    const state = this.#numberOf(this.#closure.close(targets));
    this.#closedTargets.set(hash, [...candidates, { targets, state }]);
    return state;
  }

  /** The union of two states. */
  union(a: number, b: number): number {
    if (a === b || b === deadState) return a;
    if (a === deadState) return b;
    const [one, other] = [this.configuration(a), this.configuration(b)];
    const all = new Map(Array.from(one.states, (state, i) => [state, one.stacks[i] as StackSet]));
    for (const [i, state] of other.states.entries()) {
      const [before, more] = [all.get(state), other.stacks[i] as StackSet];
      all.set(state, before === undefined ? more : this.#stackSets.union(before, more));
    }
    const states = Int32Array.from(all.keys()).sort();
    const stacks = Array.from(states, (state) => all.get(state) as StackSet);
    return this.#numberOf({ ...one, states, stacks, isAccepting: one.isAccepting || other.isAccepting });
  }

  #begin(): void {
    this.#stackSets = new StackSets(this.#budget);
    this.#counterStates = new CounterStates(this.#network, this.#budget);
    this.#closure = new Closure(this.#network, this.#stackSets, this.#counterStates, this.#budget);
    this.#known = [];
    this.#closedFrom = deadState;
    this.#index = new Map();
    this.#table = new Int32Array(0);
    this.#numEntries = 0;
    this.#startState = this.#numberOf(this.#closure.start());
  }

  #size(): number {
    return this.#numEntries + this.#stackSets.size + this.#counterStates.size + this.#table.length / 4;
  }

  /** Where a symbol leads to. */
  #targets({ states, stacks }: Configuration, symbol: number): ReadonlyMap<number, StackSet> {
    const { starts, edges } = this.#network.moves;
    const targets = new Map<number, StackSet>();
    for (let i = 0; i < states.length; i++) {
      const end = starts[states[i]! + 1]!;
      this.#budget.spend(1 + (end - starts[states[i]!]!) / 3);
      for (let at = starts[states[i]!]!; at < end; at += 3) {
        if (symbol < edges[at]! || symbol > edges[at + 1]!) continue;
        const target = edges[at + 2]!;
        const before = targets.get(target);
        const here = stacks[i] as StackSet;
        targets.set(target, before === undefined ? here : this.#stackSets.union(before, here));
      }
    }
    return targets;
  }

  #numberOf(configuration: Configuration): number {
    if (configuration.states.length === 0 && !configuration.isAccepting) return deadState;
    const hash = hashOf(configuration);
    const candidates = this.#index.get(hash);
    const ready = candidates?.find((state) => isEqual(this.#known[state] as Configuration, configuration));
    if (ready !== undefined) return ready;
    this.#checkSize();
    const state = this.#known.push(configuration) - 1;
    this.#numEntries += 4 + configuration.states.length;
    if (candidates === undefined) this.#index.set(hash, [state]);
    else candidates.push(state);
    if ((state + 1) * this.numClasses > this.#table.length) this.#enlarge();
    return state;
  }

  /** @throws {CapacityError} when one mask needs too many states */
  #checkSize(): void {
    const available = this.#maxStates * hardFactor;
    if (this.#known.length >= available) this.#budget.refuse('states', this.#known.length + 1, available, 'states');
    const size = this.#size();
    if (size > maxEntries * hardFactor) this.#budget.refuse('memory', size, maxEntries * hardFactor, 'entries');
  }

  #enlarge(): void {
    const larger = new Int32Array(Math.max(64 * this.numClasses, this.#table.length * 2));
    larger.fill(unknownState, this.#table.length);
    larger.set(this.#table);
    this.#table = larger;
  }

  /** The equal set of this epoch. */
  #adopt(set: StackSet, counters: CounterStates, adopted: Map<StackSet, StackSet>): StackSet {
    const ready = adopted.get(set);
    if (ready !== undefined) return ready;
    let result = set.hasEmpty ? this.#stackSets.empty : undefined;
    for (let i = 0; i < set.returns.length; i++) {
      const returnState = this.#counterStates.adopt(counters, set.returns[i] as number);
      const member = this.#stackSets.push(returnState, this.#adopt(set.below[i] as StackSet, counters, adopted));
      result = result === undefined ? member : this.#stackSets.union(result, member);
    }
    invariant(result !== undefined, 'a set of stacks has members');
    adopted.set(set, result);
    return result;
  }
}

/** A hash that does not depend on the order. */
function hashOfTargets(targets: ReadonlyMap<number, StackSet>): number {
  let sum = 0;
  for (const [target, { id }] of targets) sum += Math.imul(Math.imul(target, 0x01000193) ^ id, 0x9e3779b1) | 0;
  return sum | 0;
}

function isSameMap<Key, Value>(a: ReadonlyMap<Key, Value>, b: ReadonlyMap<Key, Value>): boolean {
  if (a.size !== b.size) return false;
  for (const [key, value] of a) if (b.get(key) !== value) return false;
  return true;
}

function hashOf({ states, stacks, isAccepting }: Configuration): number {
  let hash = isAccepting ? 17 : 31;
  for (let i = 0; i < states.length; i++) {
    hash = Math.imul(hash ^ states[i]!, 0x01000193);
    hash = Math.imul(hash ^ (stacks[i] as StackSet).id, 0x01000193);
  }
  return hash;
}

function isEqual(a: Configuration, b: Configuration): boolean {
  if (a.isAccepting !== b.isAccepting || a.states.length !== b.states.length) return false;
  for (let i = 0; i < a.states.length; i++) {
    if (a.states[i] !== b.states[i] || a.stacks[i] !== b.stacks[i]) return false;
  }
  return true;
}
