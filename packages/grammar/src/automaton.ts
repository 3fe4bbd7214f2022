/**
 * Runs a network as a deterministic automaton whose states are made when they are first reached: a state stands for all
 * network states that the text so far may be in, each with its possible call stacks. Moves are kept in a table, so that
 * reading a byte where somebody has been before is one look-up.
 */
import { CapacityError } from '@winnow/tensor';
import type { Network } from './compile.js';
import { createStackSets, type StackSet, type StackSets } from './stack-sets.js';

/** No text with this beginning can match. */
export const deadState = -1;
const unknownState = -2;

/** Known states beyond which everything is forgotten but the states in use. */
const defaultMaxStates = 20_000;
/** States and stacks that may come up before there is an occasion to forget. */
const hardFactor = 20;

/** What the text so far may be in: network states with their stacks. */
export interface Configuration {
  readonly states: readonly number[];
  readonly stacks: readonly StackSet[];
  readonly isAccepting: boolean;
}

const deadConfiguration: Configuration = { states: [], stacks: [], isAccepting: false };

export interface Automaton {
  readonly classOfByte: Uint8Array; // [256]
  readonly numClasses: number;
  /** Moves by state and class: a state, `deadState`, or less for one that `step` has to compute. Grows: ask anew after `step`. */
  readonly table: Int32Array; // [capacity, numClasses]
  readonly startState: number;
  step(state: number, byteClass: number): number;
  isAccepting(state: number): boolean;
  /** No byte can follow. */
  isEnd(state: number): boolean;
  /** Changes when states have been forgotten: then all numbers of states are void. */
  readonly epoch: number;
  /** A state by its contents, which outlive an epoch. */
  configuration(state: number): Configuration;
  stateOf(configuration: Configuration): number;
  /** Forgets everything when there is too much. Nobody may hold numbers of states across it without looking at `epoch`. */
  trim(): void;
}

export function createAutomaton(network: Network, maxStates: number = defaultMaxStates): Automaton {
  const numClasses = network.byteOfClass.length;
  let stackSets: StackSets = createStackSets();
  let known: Configuration[] = [];
  let index = new Map<string, number>();
  let table = new Int32Array(0);
  let epoch = 0;

  /** Adds all that calls and returns reach without a byte. Ends, because no rule calls itself before a byte. */
  function close(states: Map<number, StackSet>): Configuration {
    const queue = [...states.keys()];
    const queued = new Set(queue);
    let isAccepting = false;
    const add = (state: number, stacks: StackSet): void => {
      const before = states.get(state);
      const after = before === undefined ? stacks : stackSets.union(before, stacks);
      if (after === before) return;
      states.set(state, after);
      if (!queued.has(state)) queue.push(state);
      queued.add(state);
    };
    for (let state = queue.pop(); state !== undefined; state = queue.pop()) {
      queued.delete(state);
      const stacks = states.get(state) as StackSet;
      const { calls, isFinal } = network.state(state);
      for (let i = 0; i < calls.length; i += 2) {
        const returnState = calls[i + 1] as number;
        add(calls[i] as number, returnState < 0 ? stacks : stackSets.push(returnState, stacks));
      }
      if (!isFinal) continue;
      isAccepting ||= stacks.hasEmpty;
      for (let i = 0; i < stacks.returns.length; i++) add(stacks.returns[i] as number, stacks.below[i] as StackSet);
    }
    // the others have done their part
    const kept = [...states.keys()].filter((state) => network.state(state).moves.length > 0).sort((a, b) => a - b);
    return { states: kept, stacks: kept.map((state) => states.get(state) as StackSet), isAccepting };
  }

  function stateOf(configuration: Configuration): number {
    const { states, stacks, isAccepting } = configuration;
    if (states.length === 0 && !isAccepting) return deadState;
    let key = isAccepting ? 'a' : '';
    for (let i = 0; i < states.length; i++) key += `${states[i]}:${(stacks[i] as StackSet).id},`;
    const ready = index.get(key);
    if (ready !== undefined) return ready;
    if (known.length + stackSets.size / 8 > maxStates * hardFactor) {
      const [needed, available] = [known.length + 1, maxStates * hardFactor];
      throw new CapacityError({ resource: 'states of a grammar', needed, available, unit: 'states' });
    }
    const state = known.push(configuration) - 1;
    index.set(key, state);
    if ((state + 1) * numClasses > table.length) {
      const larger = new Int32Array(Math.max(64 * numClasses, table.length * 2)).fill(unknownState, table.length);
      larger.set(table);
      table = larger;
    }
    return state;
  }

  function start(): number {
    return stateOf(close(new Map([[network.start, stackSets.empty]])));
  }

  function step(state: number, byteClass: number): number {
    if (state === deadState) return deadState;
    const place = state * numClasses + byteClass;
    const ready = table[place] as number;
    if (ready !== unknownState) return ready;
    const byte = network.byteOfClass[byteClass] as number;
    const { states, stacks } = known[state] as Configuration;
    const targets = new Map<number, StackSet>();
    for (let i = 0; i < states.length; i++) {
      const { moves } = network.state(states[i] as number);
      for (let move = 0; move < moves.length; move += 3) {
        if (byte < (moves[move] as number) || byte > (moves[move + 1] as number)) continue;
        const target = moves[move + 2] as number;
        const before = targets.get(target);
        const here = stacks[i] as StackSet;
        targets.set(target, before === undefined ? here : stackSets.union(before, here));
      }
    }
    const next = targets.size === 0 ? deadState : stateOf(close(targets));
    table[place] = next;
    return next;
  }

  /** The same set among those of this epoch. */
  function adopt(set: StackSet, adopted: Map<StackSet, StackSet>): StackSet {
    const ready = adopted.get(set);
    if (ready !== undefined) return ready;
    let result = set.hasEmpty ? stackSets.empty : undefined;
    for (let i = 0; i < set.returns.length; i++) {
      const member = stackSets.push(set.returns[i] as number, adopt(set.below[i] as StackSet, adopted));
      result = result === undefined ? member : stackSets.union(result, member);
    }
    adopted.set(set, result as StackSet);
    return result as StackSet;
  }

  let startState = start();
  return {
    classOfByte: network.classOfByte,
    numClasses,
    get table(): Int32Array {
      return table;
    },
    get startState(): number {
      return startState;
    },
    get epoch(): number {
      return epoch;
    },
    step,
    isAccepting: (state) => state >= 0 && (known[state] as Configuration).isAccepting,
    isEnd: (state) => state < 0 || (known[state] as Configuration).states.length === 0,
    configuration: (state) => known[state] ?? deadConfiguration,
    stateOf(configuration): number {
      const adopted = new Map<StackSet, StackSet>();
      return stateOf({ ...configuration, stacks: configuration.stacks.map((set) => adopt(set, adopted)) });
    },
    trim(): void {
      if (known.length + stackSets.size / 8 <= maxStates) return;
      stackSets = createStackSets();
      known = [];
      index = new Map();
      table = new Int32Array(0);
      epoch++;
      startState = start();
    },
  };
}
