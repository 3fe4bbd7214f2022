/**
 * States that contain counts: the members of an unordered list that were written, or the items of an automaton. There may
 * be very many, so each gets its number when it is first reached.
 */
import { invariant } from '@winnow/tensor';
import type { AutomatonCounter, Counter, Network, UnorderedCounter } from '../network/network.js';
import type { WorkBudget } from '../work-budget.js';

/** The counts of a state. */
type Count = readonly number[];

/** One kind of counter. A label names what was written: a member, the separator, an edge. */
interface CounterRules {
  readonly first: Count;
  next(count: Count, label: number): Count;
  canEnd(count: Count): boolean;
  /** What may come next: rule and label, alternately. */
  callsOf(count: Count): readonly number[];
}

interface CounterState {
  readonly counter: number;
  readonly count: Count;
  readonly canEnd: boolean;
  calls: readonly number[] | undefined;
  /** States by label. */
  readonly next: Map<number, number>;
}

export class CounterStates {
  /** Numbers of labels as return states begin here, numbers of states after them. */
  readonly #firstLabel: number;
  readonly #firstState: number;
  readonly #budget: WorkBudget;
  readonly #rules: readonly CounterRules[];
  readonly #states: CounterState[] = [];
  readonly #numbers = new Map<string, number>();
  #numEntries = 0;

  constructor({ numStates, counters }: Network, budget: WorkBudget) {
    this.#firstLabel = numStates;
    this.#firstState = numStates + counters.reduce((most, counter) => Math.max(most, numLabelsOf(counter)), 0);
    this.#budget = budget;
    this.#rules = counters.map((counter) =>
      counter.kind === 'unordered' ? unorderedRules(counter) : runRules(counter),
    );
  }

  /** Entries of all states so far. */
  get size(): number {
    return this.#numEntries;
  }

  /** Whether a return state is a label. */
  isLabel(returnState: number): boolean {
    return returnState >= this.#firstLabel && returnState < this.#firstState;
  }

  labelState(label: number): number {
    return this.#firstLabel + label;
  }

  first(counter: number): number {
    return this.#numberOf(counter, (this.#rules[counter] as CounterRules).first);
  }

  /** The state after the element of a label. */
  after(state: number, labelState: number): number {
    const { counter, count, next } = this.#at(state);
    let number = next.get(labelState);
    if (number === undefined) {
      const rules = this.#rules[counter] as CounterRules;
      number = this.#numberOf(counter, rules.next(count, labelState - this.#firstLabel));
      next.set(labelState, number);
    }
    return number;
  }

  canEnd(state: number): boolean {
    return this.#at(state).canEnd;
  }

  callsOf(state: number): readonly number[] {
    const own = this.#at(state);
    if (own.calls === undefined) {
      this.#budget.spend(10 * own.count.length);
      own.calls = (this.#rules[own.counter] as CounterRules).callsOf(own.count);
      this.#numEntries += own.calls.length / 2;
    }
    return own.calls;
  }

  /** The number of the same state here; return states of the network and labels are the same. */
  adopt(from: CounterStates, returnState: number): number {
    if (from === this || returnState < this.#firstState) return returnState;
    const { counter, count } = from.#at(returnState);
    return this.#numberOf(counter, count);
  }

  #at(state: number): CounterState {
    const found = this.#states[state - this.#firstState];
    invariant(found !== undefined, 'a state of a counter');
    return found;
  }

  #numberOf(counter: number, count: Count): number {
    this.#budget.spend(10 + 2 * count.length);
    const key = `${counter}:${count.join()}`;
    let number = this.#numbers.get(key);
    if (number === undefined) {
      const canEnd = (this.#rules[counter] as CounterRules).canEnd(count);
      const state: CounterState = { counter, count, canEnd, calls: undefined, next: new Map() };
      number = this.#firstState + this.#states.push(state) - 1;
      this.#numbers.set(key, number);
      this.#numEntries += 10 + count.length;
    }
    return number;
  }
}

function numLabelsOf(counter: Counter): number {
  if (counter.kind === 'unordered') return counter.members.length + 1;
  return counter.edges.reduce((most, edges) => Math.max(most, edges.length / 2), 0);
}

/**
 * Counts: of each member, of all of them, and whether a member must follow. The label of the separator comes after those
 * of the members.
 */
function unorderedRules(counter: UnorderedCounter): CounterRules {
  const { members, separator, canOmitSeparator, max } = counter;
  const total = members.length;
  const mustFollow = total + 1;
  return {
    first: [...members.map(() => 0), 0, 1],
    next(count, label): Count {
      const next = [...count];
      next[mustFollow] = label === members.length ? 1 : 0;
      const member = members[label];
      if (member === undefined) return next;
      const highest = member.max === Infinity ? Math.max(1, member.min) : member.max;
      next[label] = Math.min((count[label] as number) + 1, highest);
      if (max !== Infinity) next[total] = (count[total] as number) + 1;
      return next;
    },
    canEnd: (count) => count[mustFollow] === 0 && isFulfilled(counter, count),
    callsOf(count): readonly number[] {
      const next = followers(counter, count);
      if (next.length === 0 || count[mustFollow] === 1) return next;
      const between = [separator, members.length];
      return canOmitSeparator ? [...between, ...next] : between;
    },
  };
}

/** What is missing: required members, different members for the minimum, and the members left to choose from. */
function missingOf({ members, min }: UnorderedCounter, count: Count): { needed: number; others: number; free: number } {
  let [needed, different, free] = [0, 0, 0];
  for (const [index, member] of members.entries()) {
    const own = count[index] as number;
    needed += Math.max(0, member.min - own);
    if (own > 0 || member.min > 0) different++;
    else if (member.max > 0) free++;
  }
  return { needed, others: Math.max(0, min - different), free };
}

function isFulfilled(counter: UnorderedCounter, count: Count): boolean {
  const { needed, others } = missingOf(counter, count);
  return needed === 0 && others === 0;
}

/** Members that may come next: those after which the counts can still be met. */
function followers(counter: UnorderedCounter, count: Count): readonly number[] {
  const { needed, others, free } = missingOf(counter, count);
  const room = counter.max - (count[counter.members.length] as number);
  return counter.members.flatMap(({ rule, min, max }, label) => {
    const own = count[label] as number;
    if (own >= max) return [];
    const isFree = own === 0 && min === 0;
    const missing = needed - (own < min ? 1 : 0) + Math.max(0, others - (isFree ? 1 : 0));
    const isPossible = Math.max(0, others - (isFree ? 1 : 0)) <= free - (isFree ? 1 : 0) && missing + 1 <= room;
    return isPossible ? [rule, label] : [];
  });
}

/** The state of the automaton, then the number of items, as far as it matters. */
function runRules({ edges, isAccepting, distances, canEnd, min, max }: AutomatonCounter): CounterRules {
  const highest = max === Infinity ? min : max;
  const next = ([state = 0, length = 0]: Count, label: number): Count => [
    edges[state]?.[2 * label + 1] ?? 0,
    Math.min(length + 1, highest),
  ];
  const isPossible = ([state = 0, length = 0]: Count): boolean =>
    length < min ? canEnd[(min - length) * edges.length + state] === 1 : (distances[state] ?? Infinity) <= max - length;
  return {
    first: [0, 0],
    next,
    canEnd: ([state = 0, length = 0]) => isAccepting[state] === true && length >= min,
    callsOf(count): readonly number[] {
      const [state = 0, length = 0] = count;
      if (length >= max) return [];
      const calls: number[] = [];
      const own = edges[state] ?? [];
      for (let label = 0; 2 * label < own.length; label++) {
        if (isPossible(next(count, label))) calls.push(own[2 * label] as number, label);
      }
      return calls;
    },
  };
}
