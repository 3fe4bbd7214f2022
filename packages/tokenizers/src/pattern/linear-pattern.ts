/**
 * Matches regular expressions in time proportional to the text, with the results of the backtracking engine of the
 * host: for the expressions of files, which may be hostile.
 */
import { CapacityError, type SliceCounter, type Sliced } from '@winnow/tensor';
import type { Expression } from './expression.js';
import type { Match, Pattern, Search } from './window-search.js';

/** Real expressions have up to 200 states; the cost per character is proportional to their number. */
const MAX_STATES = 510;
/** Memory for one text: 2^20 characters with the largest expression. */
const MAX_TABLE_BYTES = 1 << 29;
/** Maximum length of a match, which takes tens of milliseconds to follow. */
const MAX_LENGTH = 1 << 21;

/** Entries of a table between two checks for the end of a slice. */
const STATES_PER_STEP = 1 << 15;
/** Entries that cost as much as one character elsewhere. */
const STATES_PER_CHARACTER = 32;

/** The expression of a lookahead, with its table. */
interface Ahead {
  readonly program: Program;
  readonly table: Uint8Array;
}

/** A state continues at `next`; `other` is the second choice of a split. */
interface State {
  readonly kind: 'match' | 'class' | 'split' | 'ahead' | 'behind';
  readonly next: number;
  readonly other: number;
  /** Index of the class, or of the expression of a lookahead. */
  readonly index: number;
  readonly negated: boolean;
}

/**
 * For every position of the text and every state, a table says whether the rest of the expression can match from there.
 * It is filled from the end of the text. With it the match that backtracking prefers is found without backtracking.
 */
export class LinearPattern implements Pattern {
  readonly #program: Program;

  /** @throws SyntaxError for expressions that are too large */
  constructor(expression: Expression) {
    this.#program = new Program(expression, new Classes(), { left: MAX_STATES });
  }

  search(text: string): Search {
    return new TableSearch(this.#program, text);
  }
}

class TableSearch implements Search {
  readonly #program: Program;
  readonly #text: string;
  #table: Uint8Array = new Uint8Array(0);

  constructor(program: Program, text: string) {
    this.#program = program;
    this.#text = text;
  }

  *prepare(work: SliceCounter): Sliced<void> {
    this.#table = yield* this.#program.fill(this.#text, work);
  }

  next(from: number): Match | undefined {
    const text = this.#text;
    for (let start = from; start <= text.length; start += widthAt(text, start)) {
      if (!this.#program.canMatch(this.#table, start)) continue;
      return { start, end: this.#program.endOfMatch(text, this.#table, start) };
    }
    return undefined;
  }
}

/** The states of an expression. States without a character come after those that they lead to, so one pass suffices. */
class Program {
  readonly #states: State[] = [{ kind: 'match', next: 0, other: 0, index: 0, negated: false }];
  readonly #aheads: Program[] = [];
  readonly #classes: Classes;
  readonly #budget: { left: number };
  readonly #start: number;
  #order: readonly number[] = [];

  constructor(expression: Expression, classes: Classes, budget: { left: number }) {
    this.#classes = classes;
    this.#budget = budget;
    this.#start = this.#add(expression, 0);
    this.#order = this.#epsilonOrder();
  }

  canMatch(table: Uint8Array, at: number): boolean {
    return table[at * this.#states.length + this.#start] === 1;
  }

  /** `[positions, states]`: 1 where the rest of the expression can match. */
  *fill(text: string, work: SliceCounter): Sliced<Uint8Array> {
    const numStates = this.#states.length;
    const maxLength = Math.min(MAX_LENGTH, Math.floor(MAX_TABLE_BYTES / numStates) - 1);
    if (text.length > maxLength) {
      throw new CapacityError({
        resource: 'tokenizer: a text for its regular expression',
        needed: text.length,
        available: maxLength,
        unit: 'characters',
        hint: 'encode the text in parts',
      });
    }
    const table = new Uint8Array((text.length + 1) * numStates);
    const aheads: Ahead[] = [];
    for (const program of this.#aheads) aheads.push({ program, table: yield* program.fill(text, work) });
    const numRows = Math.ceil(STATES_PER_STEP / numStates);
    for (let end = text.length + 1; end > 0; end -= numRows) {
      const begin = Math.max(0, end - numRows);
      this.#fillRows(text, table, aheads, begin, end);
      if (work.spend(Math.ceil(((end - begin) * numStates) / STATES_PER_CHARACTER))) yield;
    }
    return table;
  }

  /** Rows of the positions in [begin, end), of which those behind them are filled. */
  #fillRows(text: string, table: Uint8Array, aheads: readonly Ahead[], begin: number, end: number): void {
    const numStates = this.#states.length;
    for (let at = end - 1; at >= begin; at--) {
      const row = at * numStates;
      const after = row + widthAt(text, at) * numStates;
      const current = at < text.length ? this.#classes.of(text.codePointAt(at)!) : undefined;
      for (const id of this.#order) {
        const { kind, next, other, index, negated } = this.#states[id]!;
        let can = false;
        if (kind === 'match') can = true;
        else if (kind === 'class') can = current !== undefined && current[index] === 1 && table[after + next] === 1;
        else if (kind === 'split') can = table[row + next] === 1 || table[row + other] === 1;
        else if (table[row + next] === 1) {
          const ahead = aheads[index];
          can =
            (kind === 'ahead' ? ahead!.program.canMatch(ahead!.table, at) : this.#isAfter(text, at, index)) !== negated;
        }
        if (can) table[row + id] = 1;
      }
    }
  }

  /** End of the match that backtracking finds first: at each split, the first choice that can match. */
  endOfMatch(text: string, table: Uint8Array, start: number): number {
    let at = start;
    for (let id = this.#start; id !== 0;) {
      const { kind, next, other } = this.#states[id]!;
      if (kind === 'class') at += widthAt(text, at);
      id = kind !== 'split' || table[at * this.#states.length + next] === 1 ? next : other;
    }
    return at;
  }

  /** Adds the states of an expression that continues at `next`; returns the first of them. */
  #add(expression: Expression, next: number): number {
    switch (expression.kind) {
      case 'class':
        return this.#push({
          kind: 'class',
          next,
          other: 0,
          index: this.#classes.add(expression.source),
          negated: false,
        });
      case 'sequence':
        return expression.items.reduceRight((target, item) => this.#add(item, target), next);
      case 'choice': {
        const starts = expression.alternatives.map((alternative) => this.#add(alternative, next));
        return starts.reduceRight((other, start) => this.#split(start, other));
      }
      case 'look':
        return this.#addLook(expression, next);
      case 'repeat':
        return this.#addRepeat(expression, next);
    }
  }

  #addRepeat({ item, min, max, lazy }: Expression & { kind: 'repeat' }, next: number): number {
    let target = next;
    if (max === Infinity) {
      const loop = this.#split(0, 0);
      const body = this.#add(item, loop);
      const [first, other] = lazy ? [next, body] : [body, next];
      this.#states[loop] = { kind: 'split', next: first, other, index: 0, negated: false };
      target = loop;
    } else {
      for (let count = min; count < max; count++) {
        const body = this.#add(item, target);
        target = lazy ? this.#split(next, body) : this.#split(body, next);
      }
    }
    for (let count = 0; count < min; count++) target = this.#add(item, target);
    return target;
  }

  #addLook({ behind, negated, body }: Expression & { kind: 'look' }, next: number): number {
    if (!behind) {
      const index = this.#aheads.push(new Program(body, this.#classes, this.#budget)) - 1;
      return this.#push({ kind: 'ahead', next, other: 0, index, negated });
    }
    if (body.kind !== 'class') throw new SyntaxError('expected a lookbehind of one character');
    return this.#push({ kind: 'behind', next, other: 0, index: this.#classes.add(body.source), negated });
  }

  #split(next: number, other: number): number {
    return this.#push({ kind: 'split', next, other, index: 0, negated: false });
  }

  #push(state: State): number {
    if (--this.#budget.left < 0) throw new SyntaxError(`expected at most ${MAX_STATES} states`);
    return this.#states.push(state) - 1;
  }

  /** All states, each after those that it reaches without a character; no loop does so, as their bodies match one. */
  #epsilonOrder(): number[] {
    const order: number[] = [];
    const visited = new Set<number>();
    const stack = this.#states.map((_, id) => id);
    while (stack.length > 0) {
      const id = stack.pop()!;
      if (id < 0) {
        order.push(~id);
        continue;
      }
      if (visited.has(id)) continue;
      visited.add(id);
      stack.push(~id);
      const { kind, next, other } = this.#states[id]!;
      if (kind === 'match' || kind === 'class') continue;
      stack.push(next);
      if (kind === 'split') stack.push(other);
    }
    return order;
  }

  #isAfter(text: string, at: number, index: number): boolean {
    if (at === 0) return false;
    const isPair = at > 1 && text.codePointAt(at - 2)! > 0xffff;
    return this.#classes.of(text.codePointAt(at - (isPair ? 2 : 1))!)[index] === 1;
  }
}

/** The character classes of an expression, and which of them hold a character. */
class Classes {
  readonly #indices = new Map<string, number>();
  readonly #patterns: RegExp[] = [];
  readonly #known = new Map<number, Uint8Array>();

  add(source: string): number {
    let index = this.#indices.get(source);
    if (index === undefined) {
      index = this.#patterns.push(new RegExp(`^${source}$`, 'u')) - 1;
      this.#indices.set(source, index);
    }
    return index;
  }

  of(codePoint: number): Uint8Array {
    let row = this.#known.get(codePoint);
    if (row === undefined) {
      const character = String.fromCodePoint(codePoint);
      row = Uint8Array.from(this.#patterns, (pattern) => (pattern.test(character) ? 1 : 0));
      if (this.#known.size >= 1 << 14) this.#known.clear();
      this.#known.set(codePoint, row);
    }
    return row;
  }
}

function widthAt(text: string, at: number): number {
  return text.codePointAt(at)! > 0xffff ? 2 : 1;
}
