/** Expands rules to states over bytes, each rule between a start and an end of its own. */
import type { CodePoints } from '../code-points.js';
import type { GrammarNode } from '../grammar.js';
import type { WorkBudget } from '../work-budget.js';
import { canBeEmpty } from './left-recursion.js';
import { StateWriter } from './states.js';
import { utf8Ranges, type ByteRange } from './utf8-ranges.js';

type Repeat = Extract<GrammarNode, { kind: 'repeat' }>;

/** A rule as states. */
export interface WrittenRule {
  readonly name: string;
  /** Without the empty text. */
  readonly isNonEmpty: boolean;
  readonly start: number;
  readonly end: number;
}

export class NetworkWriter {
  readonly states: StateWriter;
  /** In the order of their numbers, which calls refer to. */
  readonly rules: WrittenRule[] = [];
  readonly #isNullable: (name: string) => boolean;
  readonly #budget: WorkBudget;
  readonly #numbers = new Map<string, number>();
  readonly #classMemo = new Map<CodePoints, readonly (readonly ByteRange[])[]>();

  /** Writes a rule and all that it calls. */
  constructor(
    root: string,
    nodes: ReadonlyMap<string, GrammarNode>,
    isNullable: (name: string) => boolean,
    budget: WorkBudget,
  ) {
    this.states = new StateWriter(budget);
    this.#isNullable = isNullable;
    this.#budget = budget;
    this.#numberOf(root, false);
    for (let number = 0; number < this.rules.length; number++) {
      const { name, isNonEmpty, start, end } = this.rules[number] as WrittenRule;
      budget.place = name;
      this.#write(nodes.get(name) as GrammarNode, start, end, isNonEmpty);
    }
  }

  /** The number of a rule, which is written in its turn. */
  #numberOf(name: string, isNonEmpty: boolean): number {
    const key = `${isNonEmpty ? '+' : ' '}${name}`;
    let number = this.#numbers.get(key);
    if (number === undefined) {
      number = this.rules.push({ name, isNonEmpty, start: this.states.add(), end: this.states.add() }) - 1;
      this.#numbers.set(key, number);
    }
    return number;
  }

  /**
   * Adds what leads from one state to the other.
   * @param isNonEmpty leave the empty text out
   */
  #write(node: GrammarNode, from: number, to: number, isNonEmpty: boolean): void {
    this.#budget.spend(5);
    switch (node.kind) {
      case 'literal':
        if (node.text !== '' || !isNonEmpty) this.#writeLiteral(node.text, from, to);
        return;
      case 'class':
        this.#writeClass(node.ranges, from, to);
        return;
      case 'sequence':
        if (isNonEmpty && this.#canBeEmpty(node)) this.#writeNonEmptySequence(node.items, from, to);
        else this.#writeSequence(node.items, from, to);
        return;
      case 'choice':
        for (const alternative of node.alternatives) this.#write(alternative, from, to, isNonEmpty);
        return;
      case 'rule':
        this.states.calls.add(from, this.#numberOf(node.name, isNonEmpty && this.#isNullable(node.name)), to);
        return;
      case 'repeat':
        this.#writeRepeat(node, from, to, isNonEmpty);
    }
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

  #writeClass(ranges: CodePoints, from: number, to: number): void {
    let sequences = this.#classMemo.get(ranges);
    if (sequences === undefined) this.#classMemo.set(ranges, (sequences = utf8Ranges(ranges)));
    this.#budget.spend(5 * sequences.length);
    const ends = new Map<string, number>(); // states from which a given suffix leads to the end
    for (const bytes of sequences) {
      let target = to;
      for (let place = bytes.length - 1, rest = ''; place >= 0; place--) {
        const [first, last] = bytes[place] as ByteRange;
        if (place === 0) {
          this.states.moves.add(from, first, last, target);
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

  #writeSequence(items: readonly GrammarNode[], from: number, to: number): void {
    let state = from;
    for (const [index, item] of items.entries()) {
      const next = index === items.length - 1 ? to : this.states.add();
      this.#write(item, state, next, false);
      state = next;
    }
    if (items.length === 0) this.states.jumps.add(from, to);
  }

  /** Items that can all be empty: one of them is not, those before it are, and the rest follows. */
  #writeNonEmptySequence(items: readonly GrammarNode[], from: number, to: number): void {
    let state: number | undefined;
    for (const [index, item] of items.entries()) {
      const next = index === items.length - 1 ? to : this.states.add();
      this.#write(item, from, next, true);
      if (state !== undefined) this.#write(item, state, next, false);
      state = next;
    }
  }

  /** Repetitions of what can be empty are any smaller number of non-empty ones, so that no two ways lead to the same count. */
  #writeRepeat(node: Repeat, from: number, to: number, isNonEmpty: boolean): void {
    const { item, max } = node;
    const hasEmpty = max !== 1 && this.#canBeEmpty(item);
    const least = hasEmpty ? 0 : node.min;
    const min = isNonEmpty ? Math.max(1, least) : least;
    if (max !== undefined && max < min) return;
    let state = from;
    const writeItem = (): void => {
      const next = this.states.add();
      this.#write(item, state, next, hasEmpty || (isNonEmpty && max === 1));
      state = next;
    };
    for (let count = 0; count < min; count++) writeItem();
    if (max === undefined) {
      const loop = this.states.add(); // a separate state: states before the loop must not get the back edge
      this.states.jumps.add(state, loop);
      state = loop;
      writeItem();
      this.states.jumps.add(state, loop);
      this.states.jumps.add(loop, to);
      return;
    }
    for (let count = min; count < max; count++) {
      this.states.jumps.add(state, to);
      writeItem();
    }
    this.states.jumps.add(state, to);
  }
}
