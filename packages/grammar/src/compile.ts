/** Compiles rules to a network of states over bytes, one subnetwork per rule; rules call each other as subroutines. */
import { CapacityError, FormatError } from '@winnow/tensor';
import type { CodePoints } from './code-points.js';
import type { Grammar, GrammarNode } from './grammar.js';
import { prune } from './prune.js';
import { utf8Ranges, type ByteRange } from './utf8-ranges.js';

/** Maximum number of states: repetitions are expanded, so that a short grammar can require very many. */
const maxStates = 250_000;

/** A state after epsilon elimination. */
export interface NetworkState {
  /** Byte transitions, flat: first byte, last byte, target. */
  readonly moves: readonly number[];
  /** Calls, flat: first state of the rule, return state or -1 when nothing follows in the calling rule. */
  readonly calls: readonly number[];
  /** The rule may end here. */
  readonly isFinal: boolean;
}

/** A compiled grammar: its states and the start state. */
export interface Network {
  readonly start: number;
  /** @param index of a state; computed on first use */
  state(index: number): NetworkState;
  /** Bytes that no transition distinguishes form one class. */
  readonly classOfByte: Uint8Array; // [256]
  /** A representative byte of each class. */
  readonly byteOfClass: readonly number[];
}

interface RawState {
  readonly moves: number[];
  readonly empty: number[];
  readonly calls: number[]; // rule index, return state
  isFinal: boolean;
}

/**
 * @throws {FormatError} for missing or left-recursive rules, naming the rule
 * @throws {CapacityError} when repetitions make the network too large
 */
export function compileNetwork(grammar: Grammar): Network {
  checkLeftRecursion(grammar.rules);
  const { root, rules } = prune(grammar);
  const writer = new NetworkWriter(rules);
  const { states, ruleStarts } = writer;
  const start = ruleStarts[[...rules.keys()].indexOf(root)] as number;
  return { start, state: createReader(states, ruleStarts), ...byteClasses(states) };
}

/** Expands rules to states with epsilon transitions, each rule between its own start and end. */
class NetworkWriter {
  readonly #states: RawState[] = [];
  readonly #ruleIndex: ReadonlyMap<string, number>;
  readonly #classMemo = new Map<readonly unknown[], ByteRange[][]>();
  /** The first state of each rule. */
  readonly ruleStarts: readonly number[];

  constructor(rules: ReadonlyMap<string, GrammarNode>) {
    this.#ruleIndex = new Map([...rules.keys()].map((name, index) => [name, index]));
    this.ruleStarts = [...rules.values()].map((node) => this.#writeRule(node));
  }

  get states(): readonly RawState[] {
    return this.#states;
  }

  #writeRule(node: GrammarNode): number {
    const start = this.#add();
    const end = this.#add();
    this.#at(end).isFinal = true;
    this.#write(node, start, end);
    return start;
  }

  #add(): number {
    if (this.#states.length >= maxStates) {
      const needed = this.#states.length + 1;
      throw new CapacityError({ resource: 'grammar states', needed, available: maxStates, unit: 'states' });
    }
    return this.#states.push({ moves: [], empty: [], calls: [], isFinal: false }) - 1;
  }
  #at(index: number): RawState {
    return this.#states[index] as RawState;
  }

  #writeClass(ranges: CodePoints, from: number, to: number): void {
    let sequences = this.#classMemo.get(ranges);
    if (sequences === undefined) this.#classMemo.set(ranges, (sequences = utf8Ranges(ranges)));
    const ends = new Map<string, number>(); // states from which a given suffix leads to the end
    for (const bytes of sequences) {
      let target = to;
      for (let place = bytes.length - 1, rest = ''; place >= 0; place--) {
        const [first, last] = bytes[place] as ByteRange;
        if (place === 0) {
          this.#at(from).moves.push(first, last, target);
          break;
        }
        rest = `${first}-${last},${rest}`;
        let state = ends.get(rest);
        if (state === undefined) {
          ends.set(rest, (state = this.#add()));
          this.#at(state).moves.push(first, last, target);
        }
        target = state;
      }
    }
  }

  /** Adds the transitions that lead from one state to the other. */
  #write(node: GrammarNode, from: number, to: number): void {
    switch (node.kind) {
      case 'literal':
        this.#writeLiteral(node.text, from, to);
        return;
      case 'class':
        this.#writeClass(node.ranges, from, to);
        return;
      case 'sequence':
        this.#writeSequence(node.items, from, to);
        return;
      case 'choice':
        for (const alternative of node.alternatives) this.#write(alternative, from, to);
        return;
      case 'rule':
        this.#at(from).calls.push(this.#ruleIndex.get(node.name) as number, to);
        return;
      case 'repeat':
        this.#writeRepeat(node, from, to);
    }
  }

  #writeLiteral(text: string, from: number, to: number): void {
    const bytes = new TextEncoder().encode(text);
    let state = from;
    for (const [index, byte] of bytes.entries()) {
      const next = index === bytes.length - 1 ? to : this.#add();
      this.#at(state).moves.push(byte, byte, next);
      state = next;
    }
    if (bytes.length === 0) this.#at(from).empty.push(to);
  }

  #writeSequence(items: readonly GrammarNode[], from: number, to: number): void {
    let state = from;
    for (const [index, item] of items.entries()) {
      const next = index === items.length - 1 ? to : this.#add();
      this.#write(item, state, next);
      state = next;
    }
    if (items.length === 0) this.#at(from).empty.push(to);
  }

  #writeRepeat({ item, min, max }: Extract<GrammarNode, { kind: 'repeat' }>, from: number, to: number): void {
    let state = from;
    for (let count = 0; count < min; count++) {
      const next = this.#add();
      this.#write(item, state, next);
      state = next;
    }
    if (max === undefined) {
      const loop = this.#add(); // a separate state: states before the loop must not get the back edge
      this.#at(state).empty.push(loop);
      const end = this.#add();
      this.#write(item, loop, end);
      this.#at(end).empty.push(loop);
      this.#at(loop).empty.push(to);
      return;
    }
    for (let count = min; count < max; count++) {
      this.#at(state).empty.push(to);
      const next = this.#add();
      this.#write(item, state, next);
      state = next;
    }
    this.#at(state).empty.push(to);
  }
}

/** Returns states after epsilon elimination, each computed once. */
function createReader(states: readonly RawState[], ruleStarts: readonly number[]): (index: number) => NetworkState {
  const known: (NetworkState | undefined)[] = [];
  const endings: (boolean | undefined)[] = [];

  /** All states that epsilon transitions reach. */
  function reach(index: number): number[] {
    const reached = [index];
    const seen = new Set(reached);
    for (let next = 0; next < reached.length; next++) {
      for (const target of (states[reached[next] as number] as RawState).empty) {
        if (!seen.has(target)) reached.push(target);
        seen.add(target);
      }
    }
    return reached;
  }

  /** Whether nothing can follow but the end of the rule. */
  function isEnding(index: number): boolean {
    return (endings[index] ??= reach(index).every((reached) => {
      const { moves, calls } = states[reached] as RawState;
      return moves.length === 0 && calls.length === 0;
    }));
  }

  return (index) => {
    const ready = known[index];
    if (ready !== undefined) return ready;
    const moves: number[] = [];
    const calls: number[] = [];
    let isFinal = false;
    for (const reached of reach(index)) {
      const state = states[reached] as RawState;
      for (const value of state.moves) moves.push(value);
      for (let i = 0; i < state.calls.length; i += 2) {
        const target = state.calls[i + 1] as number;
        calls.push(ruleStarts[state.calls[i] as number] as number, isEnding(target) ? -1 : target);
      }
      isFinal ||= state.isFinal;
    }
    return (known[index] = { moves, calls, isFinal });
  };
}

function byteClasses(states: readonly RawState[]): Pick<Network, 'classOfByte' | 'byteOfClass'> {
  const begins = new Uint8Array(257);
  for (const { moves } of states) {
    for (let i = 0; i < moves.length; i += 3) {
      begins[moves[i] as number] = 1;
      begins[(moves[i + 1] as number) + 1] = 1;
    }
  }
  const classOfByte = new Uint8Array(256);
  const byteOfClass = [0];
  for (let byte = 1; byte < 256; byte++) {
    if (begins[byte] === 1) byteOfClass.push(byte);
    classOfByte[byte] = byteOfClass.length - 1;
  }
  return { classOfByte, byteOfClass };
}

/** A rule that reaches itself before any character would recurse forever. */
function checkLeftRecursion(rules: ReadonlyMap<string, GrammarNode>): void {
  const isNullable = nullableRules(rules);
  const firsts = new Map<string, string[]>();
  for (const [name, node] of rules) {
    const found: string[] = [];
    collectFirsts(node, isNullable, found);
    for (const first of found) {
      if (!rules.has(first)) fail(first, `expected a definition of this rule, which ${name} uses`);
    }
    for (const used of referencesOf(node)) {
      if (!rules.has(used)) fail(used, `expected a definition of this rule, which ${name} uses`);
    }
    firsts.set(name, found);
  }
  const done = new Set<string>();
  for (const name of rules.keys()) {
    const path: { name: string; next: number }[] = done.has(name) ? [] : [{ name, next: 0 }];
    const onPath = new Set(path.map((entry) => entry.name));
    while (path.length > 0) {
      const top = path[path.length - 1] as { name: string; next: number };
      const first = (firsts.get(top.name) as string[])[top.next++];
      if (first === undefined) {
        path.pop();
        onPath.delete(top.name);
        done.add(top.name);
      } else if (onPath.has(first)) {
        const cycle = path.slice(path.findIndex((entry) => entry.name === first)).map((entry) => entry.name);
        fail(first, `expected rules that begin with a character, got left recursion: ${[...cycle, first].join(' > ')}`);
      } else if (!done.has(first)) {
        path.push({ name: first, next: 0 });
        onPath.add(first);
      }
    }
  }
}

function fail(field: string, message: string): never {
  throw new FormatError({ source: 'grammar', field, message });
}

function nullableRules(rules: ReadonlyMap<string, GrammarNode>): (name: string) => boolean {
  const nullable = new Set<string>();
  const isNullable = (name: string): boolean => nullable.has(name);
  // users of a rule that turns out to be nullable are visited again
  const users = new Map<string, string[]>();
  for (const [name, node] of rules) {
    for (const used of new Set(referencesOf(node))) users.set(used, [...(users.get(used) ?? []), name]);
  }
  const queue = [...rules.keys()];
  for (let name = queue.pop(); name !== undefined; name = queue.pop()) {
    if (nullable.has(name) || !canBeEmpty(rules.get(name) as GrammarNode, isNullable)) continue;
    nullable.add(name);
    queue.push(...(users.get(name) ?? []));
  }
  return isNullable;
}

function canBeEmpty(node: GrammarNode, isNullable: (name: string) => boolean): boolean {
  switch (node.kind) {
    case 'literal':
      return node.text === '';
    case 'class':
      return false;
    case 'sequence':
      return node.items.every((item) => canBeEmpty(item, isNullable));
    case 'choice':
      return node.alternatives.some((alternative) => canBeEmpty(alternative, isNullable));
    case 'repeat':
      return node.min === 0 || canBeEmpty(node.item, isNullable);
    case 'rule':
      return isNullable(node.name);
  }
}

/** Rules that can be reached before any character. */
function collectFirsts(node: GrammarNode, isNullable: (name: string) => boolean, found: string[]): void {
  switch (node.kind) {
    case 'sequence':
      for (const item of node.items) {
        collectFirsts(item, isNullable, found);
        if (!canBeEmpty(item, isNullable)) return;
      }
      return;
    case 'choice':
      for (const alternative of node.alternatives) collectFirsts(alternative, isNullable, found);
      return;
    case 'repeat':
      if (node.max !== 0) collectFirsts(node.item, isNullable, found);
      return;
    case 'rule':
      found.push(node.name);
      return;
    case 'literal':
    case 'class':
  }
}

function referencesOf(node: GrammarNode): string[] {
  switch (node.kind) {
    case 'sequence':
      return node.items.flatMap(referencesOf);
    case 'choice':
      return node.alternatives.flatMap(referencesOf);
    case 'repeat':
      return referencesOf(node.item);
    case 'rule':
      return [node.name];
    case 'literal':
    case 'class':
      return [];
  }
}
