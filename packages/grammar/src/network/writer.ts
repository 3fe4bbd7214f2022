/** Expands rules to states over bytes, each rule between its own start and end. */
import type { CodePoints } from '../code-points.js';
import { FormatError, type Sliced } from '@winnow/tensor';
import { memberOf, type GrammarNode } from '../grammar.js';
import type { WorkBudget } from '../work-budget.js';
import { canBeEmpty } from './left-recursion.js';
import type { Counter } from './network.js';
import { runsOf } from './runs.js';
import { StateWriter } from './states.js';
import { utf8Ranges, type ByteRange } from './utf8-ranges.js';

type Repeat = Extract<GrammarNode, { kind: 'repeat' }>;
type CounterNode = Extract<GrammarNode, { kind: 'unordered' | 'automaton' }>;

/** The symbol of all tokens that the grammar does not name. */
export const otherToken = 256;
/** The symbol of the first token that the grammar names. */
export const firstToken: number = otherToken + 1;
/** Larger than every symbol. */
const lastSymbol = 2 ** 24;

/** The id of a token of the vocabulary. @throws {FormatError} when there is none */
export type IdOfToken = (token: number | string) => number;

/** A rule as states. */
export interface WrittenRule {
  readonly name: string;
  /** Undefined if the states of the rule are already complete: a set of characters or a counter. */
  readonly node: GrammarNode | undefined;
  /** Excludes the empty text. */
  readonly isNonEmpty: boolean;
  readonly start: number;
  readonly end: number;
}

/** A set of characters. */
interface WrittenClass {
  readonly ascii: readonly ByteRange[];
  /** The rule of its characters beyond ASCII. */
  readonly rule: number | undefined;
}

export class NetworkWriter {
  readonly states: StateWriter;
  /** By number, as calls refer to them. */
  readonly rules: WrittenRule[] = [];
  readonly counters: Counter[] = [];
  /** Ids of the tokens that the grammar names, in the order of their symbols. */
  readonly tokenIds: number[] = [];
  readonly #idOf: IdOfToken;
  readonly #isNullable: (name: string) => boolean;
  readonly #budget: WorkBudget;
  readonly #nodes: ReadonlyMap<string, GrammarNode>;
  readonly #numbers = new Map<string, number>();
  readonly #classes = new Map<CodePoints, WrittenClass>();
  /** The same by their contents. */
  readonly #classesByText = new Map<string, WrittenClass>();
  readonly #counterRules = new Map<CounterNode, number>();
  readonly #itemRules = new Map<GrammarNode, number>();
  /** Sets of characters beyond ASCII by their contents. */
  readonly #classNumbers = new Map<string, number>();

  constructor(
    root: string,
    nodes: ReadonlyMap<string, GrammarNode>,
    isNullable: (name: string) => boolean,
    idOf: IdOfToken,
    budget: WorkBudget,
  ) {
    this.#idOf = idOf;
    this.states = new StateWriter(budget);
    this.#nodes = nodes;
    this.#isNullable = isNullable;
    this.#budget = budget;
    this.#numberOf(root, false);
  }

  /** Writes the root and all that it calls. */
  *write(): Sliced<void> {
    for (let number = 0; number < this.rules.length; number++) {
      const { name, node, isNonEmpty, start, end } = this.rules[number] as WrittenRule;
      this.#budget.place = name;
      if (node !== undefined) yield* this.#write(node, start, end, isNonEmpty);
      if (this.#budget.isSliceOver()) yield;
    }
  }

  /** The number of a rule, which is written in its turn. */
  #numberOf(name: string, isNonEmpty: boolean): number {
    const key = `${isNonEmpty ? '+' : ' '}${name}`;
    let number = this.#numbers.get(key);
    if (number === undefined) {
      number = this.#addRule(name, this.#nodes.get(name), isNonEmpty);
      this.#numbers.set(key, number);
    }
    return number;
  }

  #addRule(name: string, node: GrammarNode | undefined, isNonEmpty: boolean): number {
    return this.rules.push({ name, node, isNonEmpty, start: this.states.add(), end: this.states.add() }) - 1;
  }

  /**
   * Adds states and edges for a node, between two states.
   * @param isNonEmpty exclude the empty text
   */
  *#write(node: GrammarNode, from: number, to: number, isNonEmpty: boolean): Sliced<void> {
    this.#budget.spend(5);
    if (this.#budget.isSliceOver()) yield;
    switch (node.kind) {
      case 'unordered':
      case 'automaton':
        this.states.calls.add(from, this.#counterRule(node), to);
        if (!isNonEmpty && this.#canBeEmpty(node)) this.states.jumps.add(from, to);
        return;
      case 'literal':
        if (node.text !== '' || !isNonEmpty) this.#writeLiteral(node.text, from, to);
        return;
      case 'class':
        yield* this.#writeClass(node.ranges, from, to);
        return;
      case 'token':
        this.#writeToken(node, from, to);
        return;
      case 'sequence':
        if (isNonEmpty && this.#canBeEmpty(node)) yield* this.#writeNonEmptySequence(node.items, from, to);
        else yield* this.#writeSequence(node.items, from, to);
        return;
      case 'choice':
        yield* this.#writeChoice(node.alternatives, from, to, isNonEmpty);
        return;
      case 'rule':
        this.states.calls.add(from, this.#numberOf(node.name, isNonEmpty && this.#isNullable(node.name)), to);
        return;
      case 'repeat':
        yield* this.#writeRepeat(node, from, to, isNonEmpty);
    }
  }

  /** The rule of a counter, written once. It is never empty: a jump beside the call skips it where that is allowed. */
  #counterRule(node: CounterNode): number {
    const known = this.#counterRules.get(node);
    if (known !== undefined) return known;
    const rule = this.#addRule(this.#budget.place, undefined, true);
    this.#counterRules.set(node, rule);
    const { start, end } = this.rules[rule] as WrittenRule;
    this.states.calls.add(start, -this.counters.length - 1, end);
    const max = node.max ?? Infinity;
    if (node.kind === 'automaton') {
      this.counters.push({
        kind: 'automaton',
        edges: node.states.map(({ edges }) => edges.flatMap(({ item, target }) => [this.#itemRule(item), target])),
        isAccepting: node.states.map(({ isAccepting }) => isAccepting),
        ...{ min: node.min, max, ...runsOf(node.states, node, this.#budget) },
      });
      return rule;
    }
    const { separator } = node;
    const canOmitSeparator = this.#canBeEmpty(separator);
    this.counters.push({
      kind: 'unordered',
      separator: this.#addRule(this.#budget.place, separator, canOmitSeparator),
      canOmitSeparator,
      members: node.members.map((member) => {
        const counts = memberOf(member);
        return { rule: this.#itemRule(counts.item), min: counts.min, max: counts.max };
      }),
      ...{ min: Math.max(1, node.min), max },
    });
    return rule;
  }

  /** @throws {FormatError} for one that can be empty */
  #itemRule(item: GrammarNode): number {
    const known = this.#itemRules.get(item);
    if (known !== undefined) return known;
    const { place } = this.#budget;
    if (this.#canBeEmpty(item)) {
      const message = 'expected members and items that cannot be empty';
      throw new FormatError({ source: 'grammar', field: place, message });
    }
    const rule = item.kind === 'rule' ? this.#numberOf(item.name, false) : this.#addRule(place, item, true);
    this.#itemRules.set(item, rule);
    return rule;
  }

  #writeToken({ token, isNegated }: Extract<GrammarNode, { kind: 'token' }>, from: number, to: number): void {
    const id = this.#idOf(token);
    const known = this.tokenIds.indexOf(id);
    const symbol = firstToken + (known < 0 ? this.tokenIds.push(id) - 1 : known);
    this.#budget.spend(this.tokenIds.length);
    if (!isNegated) {
      this.states.moves.add(from, symbol, symbol, to);
      return;
    }
    this.states.moves.add(from, otherToken, symbol - 1, to);
    this.states.moves.add(from, symbol + 1, lastSymbol, to);
  }

  #canBeEmpty(node: GrammarNode): boolean {
    return canBeEmpty(node, this.#isNullable, this.#budget);
  }

  #writeLiteral(text: string, from: number, to: number): void {
    const bytes = new TextEncoder().encode(text);
    let state = from;
    for (const [index, byte] of bytes.entries()) {
      const next = index === bytes.length - 1 ? to : this.states.add();
      this.states.moves.add(state, byte, byte, next);
      state = next;
    }
    if (bytes.length === 0) this.states.jumps.add(from, to);
  }

  *#writeChoice(alternatives: readonly GrammarNode[], from: number, to: number, isNonEmpty: boolean): Sliced<void> {
    const children = new Map<number, Map<number, number>>();
    for (const alternative of alternatives) {
      if (alternative.kind === 'literal' && alternative.text !== '') {
        this.#writeBranch(new TextEncoder().encode(alternative.text), from, to, children);
      } else {
        yield* this.#write(alternative, from, to, isNonEmpty);
      }
      if (this.#budget.isSliceOver()) yield;
    }
  }

  /** One of several literals, which share the states of common prefixes. @param children states by byte, per state */
  #writeBranch(bytes: Uint8Array, from: number, to: number, children: Map<number, Map<number, number>>): void {
    this.#budget.spend(5 + 2 * bytes.length);
    let state = from;
    for (const byte of bytes.subarray(0, -1)) {
      const known = children.get(state) ?? new Map<number, number>();
      children.set(state, known);
      let next = known.get(byte);
      if (next === undefined) {
        next = this.states.add();
        known.set(byte, next);
        this.states.moves.add(state, byte, byte, next);
      }
      state = next;
    }
    const last = bytes.at(-1) as number;
    this.states.moves.add(state, last, last, to);
  }

  /**
   * ASCII characters are moves. All others take many states, so each set is a rule, written once and called.
   */
  *#writeClass(ranges: CodePoints, from: number, to: number): Sliced<void> {
    let written = this.#classes.get(ranges);
    if (written === undefined) this.#classes.set(ranges, (written = yield* this.#splitClass(ranges)));
    this.#budget.spend(2 + written.ascii.length);
    for (const [first, last] of written.ascii) this.states.moves.add(from, first, last, to);
    if (written.rule !== undefined) this.states.calls.add(from, written.rule, to);
  }

  *#splitClass(ranges: CodePoints): Sliced<WrittenClass> {
    const text = ranges.join();
    const known = this.#classesByText.get(text);
    if (known !== undefined) return known;
    const written = yield* this.#writeSplit(ranges);
    this.#classesByText.set(text, written);
    return written;
  }

  *#writeSplit(ranges: CodePoints): Sliced<WrittenClass> {
    const sequences: (readonly ByteRange[])[] = [];
    for (const range of ranges) {
      const split = utf8Ranges([range]);
      this.#budget.spend(20 * split.length);
      if (this.#budget.isSliceOver()) yield;
      sequences.push(...split);
    }
    const ascii = sequences.filter(({ length }) => length === 1).map(([range]) => range as ByteRange);
    const longer = sequences.filter(({ length }) => length > 1);
    if (longer.length === 0) return { ascii, rule: undefined };
    const key = longer.join(';');
    let rule = this.#classNumbers.get(key);
    if (rule === undefined) {
      rule = this.#addRule(this.#budget.place, undefined, true);
      this.#classNumbers.set(key, rule);
      yield* this.#writeSequences(longer, this.rules[rule] as WrittenRule);
    }
    return { ascii, rule };
  }

  *#writeSequences(sequences: readonly (readonly ByteRange[])[], { start, end }: WrittenRule): Sliced<void> {
    const ends = new Map<string, number>(); // states from which a given suffix leads to the end
    for (const bytes of sequences) {
      if (this.#budget.isSliceOver()) yield;
      let target = end;
      for (let place = bytes.length - 1, rest = ''; place >= 0; place--) {
        const [first, last] = bytes[place] as ByteRange;
        if (place === 0) {
          this.states.moves.add(start, first, last, target);
          break;
        }
        rest = `${first}-${last},${rest}`;
        let state = ends.get(rest);
        if (state === undefined) {
          ends.set(rest, (state = this.states.add()));
          this.states.moves.add(state, first, last, target);
        }
        target = state;
      }
    }
  }

  *#writeSequence(items: readonly GrammarNode[], from: number, to: number): Sliced<void> {
    let state = from;
    for (const [index, item] of items.entries()) {
      const next = index === items.length - 1 ? to : this.states.add();
      yield* this.#write(item, state, next, false);
      state = next;
    }
    if (items.length === 0) this.states.jumps.add(from, to);
  }

  /** Nullable items without the empty text: one alternative for each item that may be the first non-empty one. */
  *#writeNonEmptySequence(items: readonly GrammarNode[], from: number, to: number): Sliced<void> {
    let state: number | undefined;
    for (const [index, item] of items.entries()) {
      const next = index === items.length - 1 ? to : this.states.add();
      yield* this.#write(item, from, next, true);
      if (state !== undefined) yield* this.#write(item, state, next, false);
      state = next;
    }
  }

  /**
   * A nullable item is repeated as non-empty matches only, of which any number up to `max` will do. Otherwise one text
   * would have many paths, with empty matches at different places.
   */
  *#writeRepeat(node: Repeat, from: number, to: number, isNonEmpty: boolean): Sliced<void> {
    const { item, max } = node;
    const hasEmpty = max !== 1 && this.#canBeEmpty(item);
    const isItemNonEmpty = hasEmpty || (isNonEmpty && max === 1);
    const least = hasEmpty ? 0 : node.min;
    const min = isNonEmpty ? Math.max(1, least) : least;
    if (max !== undefined && max < min) return;
    let state = from;
    for (let count = 0; count < min; count++) state = yield* this.#writeAfter(state, item, isItemNonEmpty);
    if (max === undefined) {
      const loop = this.states.add(); // a separate state: states before the loop must not get the back edge
      this.states.jumps.add(state, loop);
      this.states.jumps.add(yield* this.#writeAfter(loop, item, isItemNonEmpty), loop);
      this.states.jumps.add(loop, to);
      return;
    }
    for (let count = min; count < max; count++) {
      this.states.jumps.add(state, to);
      state = yield* this.#writeAfter(state, item, isItemNonEmpty);
    }
    this.states.jumps.add(state, to);
  }

  /** Writes an item from a state to a new one. @returns the new state */
  *#writeAfter(state: number, item: GrammarNode, isNonEmpty: boolean): Sliced<number> {
    const next = this.states.add();
    yield* this.#write(item, state, next, isNonEmpty);
    return next;
  }
}
