/** Compiles rules to a network of states over bytes; rules call each other as subroutines. */
import { invariant, type Sliced } from '@winnow/tensor';
import type { Grammar } from '../grammar.js';
import { WorkBudget } from '../work-budget.js';
import { checkLeftRecursion, nullableRules, usersOf } from './left-recursion.js';
import { prune } from './prune.js';
import type { Runs } from './runs.js';
import type { EdgeList } from './states.js';
import { firstToken, NetworkWriter, type IdOfToken, type WrittenRule } from './writer.js';

/** A member of an unordered list: its rule, and how often it may occur. */
export interface CountedMember {
  readonly rule: number;
  readonly min: number;
  /** May be infinite. */
  readonly max: number;
}

/** See `unordered` of `GrammarNode`. */
export interface UnorderedCounter {
  readonly kind: 'unordered';
  /** A grammar rule. */
  readonly separator: number;
  readonly canOmitSeparator: boolean;
  readonly members: readonly CountedMember[];
  readonly min: number;
  /** May be infinite. */
  readonly max: number;
}

/** See `automaton` of `GrammarNode`. */
export interface AutomatonCounter extends Runs {
  readonly kind: 'automaton';
  /** By state: rule and target of each edge, alternately. */
  readonly edges: readonly (readonly number[])[];
  readonly isAccepting: readonly boolean[];
  readonly min: number;
  /** May be infinite. */
  readonly max: number;
}

/** A part of a network whose states contain counts. There are too many to list, so each is created when it is reached. */
export type Counter = UnorderedCounter | AutomatonCounter;

/** A compiled grammar. States are numbered from 0; its size is linear in the number of edges. */
export interface Network {
  readonly numStates: number;
  /** Number of the rule that a whole text has to match. */
  readonly root: number;
  /**
   * Edges that consume a symbol: first symbol, last symbol, target. Symbols below 256 are bytes, 256 is any token that
   * the grammar does not name, and the tokens that it names follow.
   */
  readonly moves: EdgeList;
  /** Ids of the tokens that the grammar names. */
  readonly tokenIds: readonly number[];
  /** Edges that consume nothing: target. Beside each call of a nullable rule there is a jump to its return state. */
  readonly jumps: EdgeList;
  /**
   * Edges that call a rule: rule, and return state, or -1 for a tail call. Counter `n` has a rule whose only edge calls
   * `-1 - n`.
   */
  readonly calls: EdgeList;
  readonly counters: readonly Counter[];
  /** Start state of each rule. A rule comes after all rules that call it before they consume a byte. */
  readonly ruleStarts: Int32Array; // [numRules]
  /** Whether the end of its rule can be reached without another byte. */
  readonly canEnd: Uint8Array; // [numStates]
  /** Symbols that no move distinguishes form one class. */
  readonly classOfSymbol: Uint16Array; // [257 + number of token ids]
  /** A representative symbol of each class. */
  readonly symbolOfClass: readonly number[];
}

/**
 * @throws {FormatError} for missing or left-recursive rules, naming the rule
 * @throws {CapacityError} when it is too large or takes too much work
 */
export function* compileNetwork(
  grammar: Grammar,
  idOf: IdOfToken,
  budget: WorkBudget = new WorkBudget('grammar'),
): Sliced<Network> {
  const users = yield* usersOf(grammar.rules, budget);
  const couldBeEmpty = yield* nullableRules(grammar.rules, users, budget);
  yield* checkLeftRecursion(grammar.rules, users, couldBeEmpty, budget);
  const { root, rules } = yield* prune(grammar, users, budget);
  const isPruned = rules !== grammar.rules;
  const isNullable = isPruned ? yield* nullableRules(rules, yield* usersOf(rules, budget), budget) : couldBeEmpty;
  const writer = new NetworkWriter(root, rules, isNullable, idOf, budget);
  yield* writer.write();
  const { states, rules: written, counters } = writer;
  const { numStates } = states;
  const moves = yield* states.moves.sorted(numStates);
  yield* addSkips(writer, isNullable, budget);
  const jumps = yield* states.jumps.sorted(numStates);
  const calls = yield* states.calls.sorted(numStates);
  const order = yield* callOrder(written, counters, { jumps, calls }, budget);
  const numbers = new Int32Array(order.length);
  for (const [number, rule] of order.entries()) numbers[rule] = number;
  yield;
  const back = reversed(jumps, numStates);
  yield;
  const hasMore = withMore(back, moves, calls, numStates);
  yield;
  return {
    numStates,
    root: numbers[0] as number,
    moves,
    jumps,
    calls: { starts: calls.starts, edges: finalCalls(calls, numbers, hasMore) },
    counters: counters.map((counter) => renumbered(counter, numbers)),
    ruleStarts: Int32Array.from(order, (rule) => (written[rule] as WrittenRule).start),
    canEnd: marked(
      back,
      written.map(({ end }) => end),
      numStates,
    ),
    tokenIds: writer.tokenIds,
    ...symbolClasses(moves.edges, firstToken + writer.tokenIds.length),
  };
}

/** Beside each call of a nullable rule, a jump skips it. */
function* addSkips(
  { states, rules }: NetworkWriter,
  isNullable: (name: string) => boolean,
  budget: WorkBudget,
): Sliced<void> {
  for (const chunk of states.calls.chunks()) {
    for (let at = 0; at < chunk.length; at += 3) {
      const called = rules[chunk[at + 1]!]; // undefined for a counter
      if (called?.isNonEmpty === false && isNullable(called.name)) states.jumps.add(chunk[at]!, chunk[at + 2]!);
    }
    if (budget.isSliceOver()) yield;
  }
}

/** The rules in topological order: each after all rules that call it before they consume a byte. */
function* callOrder(
  rules: readonly WrittenRule[],
  counters: readonly Counter[],
  edges: { readonly jumps: EdgeList; readonly calls: EdgeList },
  budget: WorkBudget,
): Sliced<number[]> {
  const callees: ReadonlySet<number>[] = [];
  for (const { start } of rules) {
    if (budget.isSliceOver()) yield;
    const called = firstCalls(start, edges.jumps, edges.calls, budget);
    const firsts = [...called].flatMap((rule) => (rule < 0 ? firstRules(counters[-1 - rule] as Counter) : [rule]));
    callees.push(new Set(firsts));
  }
  const numCallers = new Int32Array(rules.length);
  for (const called of callees) {
    for (const rule of called) numCallers[rule]!++;
    budget.spend(called.size);
    if (budget.isSliceOver()) yield;
  }
  const order = [...rules.keys()].filter((rule) => numCallers[rule] === 0);
  for (let next = 0; next < order.length; next++) {
    budget.spend(5);
    if (budget.isSliceOver()) yield;
    for (const rule of callees[order[next] as number] as ReadonlySet<number>) {
      if (--numCallers[rule]! === 0) order.push(rule);
    }
  }
  invariant(order.length === rules.length, 'no rule calls itself before a byte');
  return order;
}

/** The rules that a counter may call first. */
function firstRules(counter: Counter): readonly number[] {
  if (counter.kind === 'unordered') return counter.members.map(({ rule }) => rule);
  return (counter.edges[0] as readonly number[]).filter((_, at) => at % 2 === 0);
}

function renumbered(counter: Counter, numbers: Int32Array): Counter {
  if (counter.kind === 'automaton') {
    return {
      ...counter,
      edges: counter.edges.map((own) => own.map((value, at) => (at % 2 === 0 ? numbers[value]! : value))),
    };
  }
  const members = counter.members.map((member) => ({ ...member, rule: numbers[member.rule]! }));
  return { ...counter, members, separator: numbers[counter.separator]! };
}

/** The rules that a state can call before it consumes a byte. */
function firstCalls(start: number, jumps: EdgeList, calls: EdgeList, budget: WorkBudget): ReadonlySet<number> {
  const called = new Set<number>();
  const seen = new Set([start]);
  for (const state of seen) {
    budget.spend(5);
    for (let at = calls.starts[state]!; at < calls.starts[state + 1]!; at += 2) called.add(calls.edges[at]!);
    for (let at = jumps.starts[state]!; at < jumps.starts[state + 1]!; at++) seen.add(jumps.edges[at]!);
  }
  return called;
}

/** States from which jumps lead to a move or a call. */
function withMore(back: EdgeList, moves: EdgeList, calls: EdgeList, numStates: number): Uint8Array {
  const sources: number[] = [];
  for (let state = 0; state < numStates; state++) {
    if (moves.starts[state]! < moves.starts[state + 1]! || calls.starts[state]! < calls.starts[state + 1]!)
      sources.push(state);
  }
  return marked(back, sources, numStates);
}

/** Calls with the final numbers of rules; the return state is -1 where nothing can follow it. */
function finalCalls({ edges }: EdgeList, numbers: Int32Array, hasMore: Uint8Array): Int32Array {
  return edges.map((value, at) => {
    if (at % 2 === 0) return value < 0 ? value : numbers[value]!;
    return hasMore[value] === 1 ? value : -1;
  });
}

/** Jumps, reversed. */
function reversed({ starts, edges }: EdgeList, numStates: number): EdgeList {
  const backStarts = new Int32Array(numStates + 1);
  for (const target of edges) backStarts[target + 1]!++;
  for (let state = 0; state < numStates; state++) backStarts[state + 1]! += backStarts[state]!;
  const next = backStarts.slice();
  const sources = new Int32Array(edges.length);
  for (let state = 0; state < numStates; state++) {
    for (let at = starts[state]!; at < starts[state + 1]!; at++) sources[next[edges[at]!]!++] = state;
  }
  return { starts: backStarts, edges: sources };
}

/** Marks the states that can be reached. */
function marked({ starts, edges }: EdgeList, from: readonly number[], numStates: number): Uint8Array {
  const isMarked = new Uint8Array(numStates);
  const queue = [...from];
  for (const state of queue) isMarked[state] = 1;
  for (let state = queue.pop(); state !== undefined; state = queue.pop()) {
    for (let at = starts[state]!; at < starts[state + 1]!; at++) {
      const target = edges[at]!;
      if (isMarked[target] === 0) queue.push(target);
      isMarked[target] = 1;
    }
  }
  return isMarked;
}

function symbolClasses(moves: Int32Array, numSymbols: number): Pick<Network, 'classOfSymbol' | 'symbolOfClass'> {
  const begins = new Uint8Array(numSymbols + 1);
  for (let at = 0; at < moves.length; at += 3) {
    begins[moves[at]!] = 1;
    begins[Math.min(moves[at + 1]! + 1, numSymbols)] = 1;
  }
  const classOfSymbol = new Uint16Array(numSymbols);
  const symbolOfClass = [0];
  for (let symbol = 1; symbol < numSymbols; symbol++) {
    if (begins[symbol] === 1) symbolOfClass.push(symbol);
    classOfSymbol[symbol] = symbolOfClass.length - 1;
  }
  invariant(symbolOfClass.length <= 2 ** 16, 'classes have 16 bits: the budget allows far fewer named tokens');
  return { classOfSymbol, symbolOfClass };
}
