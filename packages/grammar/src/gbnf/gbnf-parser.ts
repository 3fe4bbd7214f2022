/**
 * Parser of GBNF, the dialect of llama.cpp (grammars/README.md there, at
 * https://github.com/ggml-org/llama.cpp/blob/b6000/grammars/README.md): rules `name ::= ...`, alternatives, groups,
 * literals, classes, `.`, `* + ? {m} {m,} {m,n}`, escapes and comments. Names may have underscores, and a line may
 * begin with `|`. Two extensions write what other rules would need very many alternatives for: `&{m,n}(separator | a | b? | c*)`
 * is a list of `a` and perhaps `b` and any number of `c` in any order, at least `m` different ones and at most `n` in all;
 * `@{m,n}([a-z] 0 "." 1 | ! [0-9] 1)` is `m` to `n` items that lead from state 0 to a state that is marked by `!`.
 */
import { FormatError, finish, type Sliced } from '@winnow/tensor';
import { allCodePoints, complement, normalize } from '../code-points.js';
import {
  maxCodePoint,
  type AutomatonState,
  type CodePointRange,
  type CountRange,
  type Grammar,
  type GrammarNode,
} from '../grammar.js';
import type { TimeLimit } from '../deadline.js';
import { WorkBudget } from '../work-budget.js';

/** Maximum nesting of groups: the parser recurses, and deeper nesting is more likely an attack than a grammar. */
const maxDepth = 200;
/** Maximum repetition count, which bounds the size of the automaton. */
export const maxRepetitions = 100_000;

/** Maximum number of characters of a literal or class, which is read at once. */
const maxLiteralLength = 2 ** 18;
/** Steps of a character. */
const stepsPerCharacter = 3;

const simpleEscapes: Readonly<Record<string, string>> = {
  t: '\t',
  r: '\r',
  n: '\n',
  '\\': '\\',
  '"': '"',
  '[': '[',
  ']': ']',
  '-': '-',
  '^': '^',
};
const hexEscapes: Readonly<Record<string, number>> = { x: 2, u: 4, U: 8 };

const nameAt = /[a-zA-Z0-9_-]+/y;
const countsAt = /\{[ \t]*(\d*)[ \t]*(,[ \t]*(\d*)[ \t]*)?\}/y;
const tokenAt = /(!?)(?:<\[(\d{1,9})\]>|(<[^>]+>))/y;
const ruleAt = /[a-zA-Z0-9_-]+[ \t]*::=/y;
const escapeNames = '\\t \\r \\n \\\\ \\" \\[ \\] \\- \\^ \\xHH \\uHHHH \\UHHHHHHHH';

/**
 * @throws {FormatError} with the byte offset for invalid syntax and for a rule that is missing or defined twice
 * @throws {CapacityError} for groups nested too deeply, repetitions beyond 100,000 and literals of more than 262,144 characters
 */
export function parseGrammar(text: string, root = 'root'): Grammar {
  return finish(parseGrammarSliced(text, root));
}

export interface ParseLimits {
  /** Rejects a grammar that takes too long. Default: none. */
  readonly deadline?: TimeLimit;
}

/** The same in slices. */
export function parseGrammarSliced(text: string, root = 'root', { deadline }: ParseLimits = {}): Sliced<Grammar> {
  return new GrammarParser(text, deadline).parse(root);
}

/** A recursive-descent parser. */
class GrammarParser {
  readonly #text: string;
  readonly #rules = new Map<string, GrammarNode>();
  /** Where each rule is first used. */
  readonly #references = new Map<string, number>();
  #position = 0;
  #depth = 0;
  readonly #budget: WorkBudget;
  /** Where the slice begins. */
  #sliceStart = 0;

  constructor(text: string, deadline: TimeLimit | undefined) {
    this.#text = text;
    this.#budget = new WorkBudget('grammar', { maxSteps: Infinity, deadline }); // linear in the text
  }

  *parse(root: string): Sliced<Grammar> {
    this.#skipSpace(true);
    while (this.#position < this.#text.length) yield* this.#readRule();
    if (!this.#rules.has(root)) this.#fail(root, 'expected a definition of this rule', 0);
    for (const [name, at] of this.#references) {
      this.#budget.spend(10);
      if (this.#budget.isSliceOver()) yield;
      if (!this.#rules.has(name)) this.#fail(name, 'expected a definition of this rule', at);
    }
    return { root, rules: this.#rules };
  }

  *#readRule(): Sliced<void> {
    const at = this.#position;
    const name = this.#readName('rule');
    this.#budget.place = name;
    this.#skipSpace(false);
    if (!this.#text.startsWith('::=', this.#position)) this.#fail(name, `expected ::=, got ${this.#found()}`);
    if (this.#rules.has(name)) this.#fail(name, 'expected a single definition of this rule, got a second one', at);
    this.#position += 3;
    this.#skipSpace(true);
    const isEmpty = this.#startsRule();
    this.#rules.set(name, isEmpty ? { kind: 'sequence', items: [] } : yield* this.#readAlternatives(false));
    const end = this.#position;
    this.#skipSpace(true);
    const isNewLine = /[\r\n]/.test(this.#text.slice(end, this.#position));
    if (!isNewLine && this.#position < this.#text.length && !this.#startsRule()) {
      this.#fail(name, `expected the end of the line, got ${this.#found()}`);
    }
  }

  #fail(field: string, message: string, at = this.#position): never {
    const byteOffset = new TextEncoder().encode(this.#text.slice(0, at)).length;
    throw new FormatError({ source: 'grammar', byteOffset, field, message });
  }

  #checkLength(start: number): void {
    const length = this.#position - start;
    if (length > maxLiteralLength) this.#budget.refuse('literal or class', length, maxLiteralLength, 'characters');
  }

  #isSliceOver(): boolean {
    this.#budget.spend(stepsPerCharacter * (this.#position - this.#sliceStart));
    this.#sliceStart = this.#position;
    return this.#budget.isSliceOver();
  }

  #found(at = this.#position): string {
    return at >= this.#text.length
      ? 'the end'
      : JSON.stringify(String.fromCodePoint(this.#text.codePointAt(at) as number));
  }

  #skipSpace(acrossLines: boolean): void {
    for (; this.#position < this.#text.length; this.#position++) {
      const char = this.#text[this.#position] as string;
      if (char === '#') {
        while (
          this.#position < this.#text.length &&
          this.#text[this.#position] !== '\n' &&
          this.#text[this.#position] !== '\r'
        )
          this.#position++;
        this.#position--;
      } else if (char === '\n' || char === '\r') {
        if (!acrossLines) return;
      } else if (char !== ' ' && char !== '\t') return;
    }
  }

  #readName(what: string): string {
    nameAt.lastIndex = this.#position;
    const name = nameAt.exec(this.#text)?.[0];
    if (name === undefined) this.#fail(what, `expected a name, got ${this.#found()}`);
    this.#position += name.length;
    return name;
  }

  /** One character of a literal or class, as a code point. */
  #readChar(closing: string, field: string, start: number): number {
    this.#checkLength(start);
    if (this.#position >= this.#text.length) this.#fail(field, `expected ${closing} before the end`, start);
    const codePoint = this.#text.codePointAt(this.#position) as number;
    if (codePoint !== 0x5c) {
      if (codePoint >= 0xd800 && codePoint <= 0xdfff)
        this.#fail(field, 'expected a character, got half a surrogate pair');
      this.#position += codePoint > 0xffff ? 2 : 1;
      return codePoint;
    }
    const kind = this.#text[this.#position + 1] ?? '';
    const numDigits = hexEscapes[kind];
    if (numDigits === undefined) {
      const plain = simpleEscapes[kind];
      if (plain === undefined)
        this.#fail(field, `expected an escape of ${escapeNames}, got ${this.#found(this.#position + 1)}`);
      this.#position += 2;
      return plain.charCodeAt(0);
    }
    const digits = this.#text.slice(this.#position + 2, this.#position + 2 + numDigits);
    const value = /^[0-9a-fA-F]+$/.test(digits) && digits.length === numDigits ? Number.parseInt(digits, 16) : -1;
    if (value < 0) this.#fail(field, `expected ${numDigits} hexadecimal digits after \\${kind}`);
    if (value > maxCodePoint || (value >= 0xd800 && value <= 0xdfff)) {
      this.#fail(field, `expected a Unicode character, got \\${kind}${digits}`);
    }
    this.#position += 2 + numDigits;
    return value;
  }

  #readLiteral(): GrammarNode {
    const start = this.#position++;
    let literal = '';
    while (this.#text[this.#position] !== '"') literal += String.fromCodePoint(this.#readChar('"', 'literal', start));
    this.#position++;
    return { kind: 'literal', text: literal };
  }

  #readClass(): GrammarNode {
    const start = this.#position++;
    const isNegated = this.#text[this.#position] === '^';
    if (isNegated) this.#position++;
    const ranges: CodePointRange[] = [];
    while (this.#text[this.#position] !== ']') {
      const at = this.#position;
      const first = this.#readChar(']', 'class', start);
      let last = first;
      if (this.#text[this.#position] === '-' && this.#text[this.#position + 1] !== ']') {
        this.#position++;
        last = this.#readChar(']', 'class', start);
      }
      if (last < first) this.#fail('class', 'expected ranges from the lower to the higher character', at);
      ranges.push([first, last]);
    }
    this.#position++;
    const set = normalize(ranges);
    return { kind: 'class', ranges: isNegated ? complement(set) : set };
  }

  #readRepetition(item: GrammarNode): GrammarNode | undefined {
    const char = this.#text[this.#position];
    if (char === '*' || char === '+' || char === '?') {
      this.#position++;
      return { kind: 'repeat', item, min: char === '+' ? 1 : 0, ...(char === '?' ? { max: 1 } : {}) };
    }
    return char === '{' ? { kind: 'repeat', item, ...this.#readCounts() } : undefined;
  }

  #readCounts(): CountRange {
    countsAt.lastIndex = this.#position;
    const match = countsAt.exec(this.#text);
    if (match === null || (match[1] === '' && (match[3] ?? '') === '')) {
      this.#fail('repetition', 'expected {m}, {m,}, {,n} or {m,n}');
    }
    const [whole, least = '', comma, most = ''] = match;
    const min = least === '' ? 0 : Number(least);
    const max = comma === undefined ? min : most === '' ? undefined : Number(most);
    if (Math.max(min, max ?? 0) > maxRepetitions) {
      this.#budget.refuse('repetition', Math.max(min, max ?? 0), maxRepetitions, 'times');
    }
    if (max !== undefined && max < min)
      this.#fail('repetition', `expected at least ${min} as the upper bound, got ${max}`);
    this.#position += whole.length;
    return max === undefined ? { min } : { min, max };
  }

  /** `&{m,n}(separator | member | ...)` */
  *#readUnordered(): Sliced<GrammarNode> {
    this.#position++;
    const counts = this.#readCounts();
    const [separator, ...members] = yield* this.#readParts('&', () => this.#readSequence(true));
    return { kind: 'unordered', separator: separator as GrammarNode, members, ...counts };
  }

  /** `@{m,n}(item target ... | ! item target ... | ...)`: states, of which those with `!` accept. */
  *#readAutomaton(): Sliced<GrammarNode> {
    this.#position++;
    const counts = this.#readCounts();
    const start = this.#position;
    const states = yield* this.#readParts('@', () => this.#readState());
    const isMissing = states.some(({ edges }) => edges.some(({ target }) => target >= states.length));
    if (isMissing) this.#fail('@', `expected targets below ${states.length}, the number of states`, start);
    return { kind: 'automaton', states, ...counts };
  }

  /** Parts in parentheses with `|` between them. */
  *#readParts<Part>(field: string, read: () => Sliced<Part>): Sliced<readonly Part[]> {
    this.#expect('(', field);
    if (++this.#depth > maxDepth) this.#budget.refuse('groups', this.#depth, maxDepth, 'levels');
    const parts: Part[] = [];
    do {
      this.#skipSpace(true);
      parts.push(yield* read());
      this.#skipSpace(true);
    } while (this.#skips('|'));
    this.#expect(')', field);
    this.#depth--;
    return parts;
  }

  *#readState(): Sliced<AutomatonState> {
    const isAccepting = this.#skips('!');
    const edges: { item: GrammarNode; target: number }[] = [];
    for (;;) {
      this.#skipSpace(true);
      if (this.#isSliceOver()) yield;
      const item = yield* this.#readItem();
      if (item === undefined) return { edges, isAccepting };
      this.#skipSpace(true);
      const target = this.#readName('target');
      if (!/^\d{1,9}$/.test(target)) this.#fail('target', `expected the number of a state, got ${target}`);
      edges.push({ item, target: Number(target) });
    }
  }

  #skips(char: string): boolean {
    if (this.#text[this.#position] !== char) return false;
    this.#position++;
    this.#skipSpace(true);
    return true;
  }

  #expect(char: string, field: string): void {
    if (this.#text[this.#position] !== char) this.#fail(field, `expected ${char}, got ${this.#found()}`);
    this.#position++;
  }

  /** `<[id]>`, `<text>`, or either after `!`. */
  #readToken(): GrammarNode {
    tokenAt.lastIndex = this.#position;
    const match = tokenAt.exec(this.#text);
    if (match === null) this.#fail('token', 'expected <[id]> or <text>, perhaps after !');
    const [whole, negation, id, text] = match;
    this.#position += whole.length;
    return { kind: 'token', token: id === undefined ? (text as string) : Number(id), isNegated: negation === '!' };
  }

  *#readGroup(field: string): Sliced<GrammarNode> {
    const start = this.#position;
    this.#expect('(', field);
    if (++this.#depth > maxDepth) this.#budget.refuse('groups', this.#depth, maxDepth, 'levels');
    this.#skipSpace(true);
    const group = yield* this.#readAlternatives(true);
    if (this.#text[this.#position] !== ')')
      this.#fail(field, `expected ), got ${this.#found()}`, this.#text[this.#position] ? this.#position : start);
    this.#position++;
    this.#depth--;
    return group;
  }

  *#readItem(): Sliced<GrammarNode | undefined> {
    const char = this.#text[this.#position];
    if (char === '"') return this.#readLiteral();
    if (char === '[') return this.#readClass();
    if (char === '.') {
      this.#position++;
      return { kind: 'class', ranges: allCodePoints };
    }
    if (char === '<' || char === '!') return this.#readToken();
    if (char === '(') return yield* this.#readGroup('group');
    if (char === '&') return yield* this.#readUnordered();
    if (char === '@') return yield* this.#readAutomaton();
    nameAt.lastIndex = this.#position;
    if (!nameAt.test(this.#text)) return undefined;
    const at = this.#position;
    const name = this.#readName('rule');
    if (!this.#references.has(name)) this.#references.set(name, at);
    return { kind: 'rule', name };
  }

  *#readSequence(isNested: boolean): Sliced<GrammarNode> {
    const items: GrammarNode[] = [];
    for (;;) {
      if (this.#isSliceOver()) yield;
      if (!isNested && this.#startsRule()) break;
      const item = yield* this.#readItem();
      if (item === undefined) break;
      this.#skipSpace(isNested);
      let whole = item;
      for (let depth = 1; ; depth++) {
        const repeated = this.#readRepetition(whole);
        if (repeated === undefined) break;
        if (depth > maxDepth) this.#budget.refuse('repetitions of repetitions', depth, maxDepth, 'levels');
        whole = repeated;
        this.#skipSpace(isNested);
      }
      items.push(whole);
    }
    return items.length === 1 ? (items[0] as GrammarNode) : { kind: 'sequence', items };
  }

  #startsRule(): boolean {
    ruleAt.lastIndex = this.#position;
    return ruleAt.test(this.#text);
  }

  *#readAlternatives(isNested: boolean): Sliced<GrammarNode> {
    const alternatives = [yield* this.#readSequence(isNested)];
    for (;;) {
      const end = this.#position;
      this.#skipSpace(true);
      if (this.#text[this.#position] !== '|') {
        this.#position = end;
        this.#skipSpace(isNested);
        break;
      }
      this.#position++;
      this.#skipSpace(true);
      alternatives.push(yield* this.#readSequence(isNested));
    }
    return alternatives.length === 1 ? (alternatives[0] as GrammarNode) : { kind: 'choice', alternatives };
  }
}
