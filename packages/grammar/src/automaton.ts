/**
 * Runs a network as a lazily built deterministic automaton: a state is the set of all network states that the text so
 * far may be in, each with its possible call stacks. Transitions are cached in a table, so that a repeated step is a
 * single lookup.
 */
import { CapacityError } from '@winnow/tensor';
import type { Network } from './compile.js';
import { createStackSets, type StackSet, type StackSets } from './stack-sets.js';

/** No text with this prefix can match. */
export const deadState = -1;
const unknownState = -2;

/** Number of states beyond which all states except those in use are discarded. */
const defaultMaxStates = 20_000;
/** Number of states and stacks that may be added before the cache can be trimmed. */
const hardFactor = 20;

/** The network states that the text so far may be in, with their stacks. */
export interface Configuration {
  readonly states: readonly number[];
  readonly stacks: readonly StackSet[];
  readonly isAccepting: boolean;
}

const deadConfiguration: Configuration = { states: [], stacks: [], isAccepting: false };

export class Automaton {
  readonly classOfByte: Uint8Array; // [256]
  readonly numClasses: number;
  readonly #network: Network;
  readonly #maxStates: number;
  #stackSets: StackSets = createStackSets();
  #known: Configuration[] = [];
  #index = new Map<string, number>();
  #table = new Int32Array(0);
  #epoch = 0;
  #startState: number;

  constructor(network: Network, maxStates: number = defaultMaxStates) {
    this.#network = network;
    this.#maxStates = maxStates;
    this.classOfByte = network.classOfByte;
    this.numClasses = network.byteOfClass.length;
    this.#startState = this.#start();
  }

  /**
   * Transitions by state and class: a state, `deadState`, or a smaller value for one that `step` has to compute. The
   * table may be reallocated by `step`: read it again after each call.
   */
  get table(): Int32Array {
    return this.#table; // [capacity, numClasses]
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
    return this.#known[state] ?? deadConfiguration;
  }

  stateOf(configuration: Configuration): number {
    const adopted = new Map<StackSet, StackSet>();
    return this.#numberOf({ ...configuration, stacks: configuration.stacks.map((set) => this.#adopt(set, adopted)) });
  }

  /** Trims the cache when it is too large. Callers that hold state numbers across this call must check `epoch`. */
  trim(): void {
    if (this.#known.length + this.#stackSets.size / 8 <= this.#maxStates) return;
    this.#stackSets = createStackSets();
    this.#known = [];
    this.#index = new Map();
    this.#table = new Int32Array(0);
    this.#epoch++;
    this.#startState = this.#start();
  }

  /**
   * Adds the closure over calls and returns that consume no byte. Terminates because no rule calls itself before
   * consuming a byte.
   */
  #close(states: Map<number, StackSet>): Configuration {
    const queue = [...states.keys()];
    const queued = new Set(queue);
    let isAccepting = false;
    const add = (state: number, stacks: StackSet): void => {
      const before = states.get(state);
      const after = before === undefined ? stacks : this.#stackSets.union(before, stacks);
      if (after === before) return;
      states.set(state, after);
      if (!queued.has(state)) queue.push(state);
      queued.add(state);
    };
    for (let state = queue.pop(); state !== undefined; state = queue.pop()) {
      queued.delete(state);
      const stacks = states.get(state) as StackSet;
      const { calls, isFinal } = this.#network.state(state);
      for (let i = 0; i < calls.length; i += 2) {
        const returnState = calls[i + 1] as number;
        add(calls[i] as number, returnState < 0 ? stacks : this.#stackSets.push(returnState, stacks));
      }
      if (!isFinal) continue;
      isAccepting ||= stacks.hasEmpty;
      for (let i = 0; i < stacks.returns.length; i++) add(stacks.returns[i] as number, stacks.below[i] as StackSet);
    }
    // the others only contribute to the closure
    const kept = [...states.keys()]
      .filter((state) => this.#network.state(state).moves.length > 0)
      .sort((a, b) => a - b);
    return { states: kept, stacks: kept.map((state) => states.get(state) as StackSet), isAccepting };
  }

  #numberOf(configuration: Configuration): number {
    const { states, stacks, isAccepting } = configuration;
    if (states.length === 0 && !isAccepting) return deadState;
    let key = isAccepting ? 'a' : '';
    for (let i = 0; i < states.length; i++) key += `${states[i]}:${(stacks[i] as StackSet).id},`;
    const ready = this.#index.get(key);
    if (ready !== undefined) return ready;
    if (this.#known.length + this.#stackSets.size / 8 > this.#maxStates * hardFactor) {
      const [needed, available] = [this.#known.length + 1, this.#maxStates * hardFactor];
      throw new CapacityError({ resource: 'states of a grammar', needed, available, unit: 'states' });
    }
    const state = this.#known.push(configuration) - 1;
    this.#index.set(key, state);
    if ((state + 1) * this.numClasses > this.#table.length) {
      const larger = new Int32Array(Math.max(64 * this.numClasses, this.#table.length * 2)).fill(
        unknownState,
        this.#table.length,
      );
      larger.set(this.#table);
      this.#table = larger;
    }
    return state;
  }

  #start(): number {
    return this.#numberOf(this.#close(new Map([[this.#network.start, this.#stackSets.empty]])));
  }

  step(state: number, byteClass: number): number {
    if (state === deadState) return deadState;
    const place = state * this.numClasses + byteClass;
    const ready = this.#table[place] as number;
    if (ready !== unknownState) return ready;
    const byte = this.#network.byteOfClass[byteClass] as number;
    const { states, stacks } = this.#known[state] as Configuration;
    const targets = new Map<number, StackSet>();
    for (let i = 0; i < states.length; i++) {
      const { moves } = this.#network.state(states[i] as number);
      for (let move = 0; move < moves.length; move += 3) {
        if (byte < (moves[move] as number) || byte > (moves[move + 1] as number)) continue;
        const target = moves[move + 2] as number;
        const before = targets.get(target);
        const here = stacks[i] as StackSet;
        targets.set(target, before === undefined ? here : this.#stackSets.union(before, here));
      }
    }
    const next = targets.size === 0 ? deadState : this.#numberOf(this.#close(targets));
    this.#table[place] = next;
    return next;
  }

  /** The equal set of this epoch. */
  #adopt(set: StackSet, adopted: Map<StackSet, StackSet>): StackSet {
    const ready = adopted.get(set);
    if (ready !== undefined) return ready;
    let result = set.hasEmpty ? this.#stackSets.empty : undefined;
    for (let i = 0; i < set.returns.length; i++) {
      const member = this.#stackSets.push(set.returns[i] as number, this.#adopt(set.below[i] as StackSet, adopted));
      result = result === undefined ? member : this.#stackSets.union(result, member);
    }
    adopted.set(set, result as StackSet);
    return result as StackSet;
  }
}
