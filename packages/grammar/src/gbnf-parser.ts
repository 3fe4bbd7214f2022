/**
 * Parser of GBNF, the dialect of llama.cpp (grammars/README.md there, at
 * https://github.com/ggml-org/llama.cpp/blob/b6000/grammars/README.md): rules `name ::= ...`, alternatives, groups, literals,
 * classes, `.`, `* + ? {m} {m,} {m,n}`, escapes and comments. Names may have underscores, and a line may begin with `|`.
 */
import { CapacityError, FormatError } from '@winnow/tensor';
import { allCodePoints, complement, normalize } from './code-points.js';
import { maxCodePoint, type CodePointRange, type Grammar, type GrammarNode } from './grammar.js';

/** Groups in groups: deeper ones are more likely an attack than a grammar, and the parser recurses. */
const maxDepth = 200;
/** Times that a part may be demanded; beyond, the automaton would not be small. */
export const maxRepetitions = 100_000;

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

/**
 * @throws {FormatError} with the byte offset for a text that is no grammar, a rule that is missing or defined twice
 * @throws {CapacityError} for groups that are nested too deeply and repetitions beyond 100,000
 */
export function parseGrammar(text: string, root = 'root'): Grammar {
  const rules = new Map<string, GrammarNode>();
  const references = new Map<string, number>();
  let position = 0;
  let depth = 0;

  function fail(field: string, message: string, at = position): never {
    const byteOffset = new TextEncoder().encode(text.slice(0, at)).length;
    throw new FormatError({ source: 'grammar', byteOffset, field, message });
  }

  function found(at = position): string {
    return at >= text.length ? 'the end' : JSON.stringify(String.fromCodePoint(text.codePointAt(at) as number));
  }

  function skipSpace(acrossLines: boolean): void {
    for (; position < text.length; position++) {
      const char = text[position] as string;
      if (char === '#') {
        while (position < text.length && text[position] !== '\n' && text[position] !== '\r') position++;
        position--;
      } else if (char === '\n' || char === '\r') {
        if (!acrossLines) return;
      } else if (char !== ' ' && char !== '\t') return;
    }
  }

  const nameAt = /[a-zA-Z0-9_-]+/y;
  function readName(what: string): string {
    nameAt.lastIndex = position;
    const name = nameAt.exec(text)?.[0];
    if (name === undefined) fail(what, `expected a name, got ${found()}`);
    position += name.length;
    return name;
  }

  /** One character of a literal or class, as a code point. */
  function readChar(closing: string, field: string, start: number): number {
    if (position >= text.length) fail(field, `expected ${closing} before the end`, start);
    const codePoint = text.codePointAt(position) as number;
    if (codePoint !== 0x5c) {
      if (codePoint >= 0xd800 && codePoint <= 0xdfff) fail(field, 'expected a character, got half a surrogate pair');
      position += codePoint > 0xffff ? 2 : 1;
      return codePoint;
    }
    const kind = text[position + 1] ?? '';
    const numDigits = hexEscapes[kind];
    if (numDigits === undefined) {
      const plain = simpleEscapes[kind];
      if (plain === undefined) fail(field, `expected an escape of ${escapeNames}, got ${found(position + 1)}`);
      position += 2;
      return plain.charCodeAt(0);
    }
    const digits = text.slice(position + 2, position + 2 + numDigits);
    const value = /^[0-9a-fA-F]+$/.test(digits) && digits.length === numDigits ? Number.parseInt(digits, 16) : -1;
    if (value < 0) fail(field, `expected ${numDigits} hexadecimal digits after \\${kind}`);
    if (value > maxCodePoint || (value >= 0xd800 && value <= 0xdfff)) {
      fail(field, `expected a character of Unicode, got \\${kind}${digits}`);
    }
    position += 2 + numDigits;
    return value;
  }

  function readLiteral(): GrammarNode {
    const start = position++;
    let literal = '';
    while (text[position] !== '"') literal += String.fromCodePoint(readChar('"', 'literal', start));
    position++;
    return { kind: 'literal', text: literal };
  }

  function readClass(): GrammarNode {
    const start = position++;
    const isNegated = text[position] === '^';
    if (isNegated) position++;
    const ranges: CodePointRange[] = [];
    while (text[position] !== ']') {
      const at = position;
      const first = readChar(']', 'class', start);
      let last = first;
      if (text[position] === '-' && text[position + 1] !== ']') {
        position++;
        last = readChar(']', 'class', start);
      }
      if (last < first) fail('class', 'expected ranges from the lower to the higher character', at);
      ranges.push([first, last]);
    }
    position++;
    const set = normalize(ranges);
    return { kind: 'class', ranges: isNegated ? complement(set) : set };
  }

  const countsAt = /\{[ \t]*(\d*)[ \t]*(,[ \t]*(\d*)[ \t]*)?\}/y;
  function readRepetition(item: GrammarNode): GrammarNode | undefined {
    const char = text[position];
    if (char === '*' || char === '+' || char === '?') {
      position++;
      return { kind: 'repeat', item, min: char === '+' ? 1 : 0, ...(char === '?' ? { max: 1 } : {}) };
    }
    if (char !== '{') return undefined;
    countsAt.lastIndex = position;
    const match = countsAt.exec(text);
    if (match === null || (match[1] === '' && (match[3] ?? '') === '')) {
      fail('repetition', 'expected {m}, {m,}, {,n} or {m,n}');
    }
    const [whole, least = '', comma, most = ''] = match;
    const min = least === '' ? 0 : Number(least);
    const max = comma === undefined ? min : most === '' ? undefined : Number(most);
    if (Math.max(min, max ?? 0) > maxRepetitions) {
      const needed = Math.max(min, max ?? 0);
      throw new CapacityError({ resource: 'grammar repetition', needed, available: maxRepetitions, unit: 'times' });
    }
    if (max !== undefined && max < min) fail('repetition', `expected at least ${min} as the upper bound, got ${max}`);
    position += whole.length;
    return { kind: 'repeat', item, min, ...(max === undefined ? {} : { max }) };
  }

  function readItem(): GrammarNode | undefined {
    const char = text[position];
    if (char === '"') return readLiteral();
    if (char === '[') return readClass();
    if (char === '.') {
      position++;
      return { kind: 'class', ranges: allCodePoints };
    }
    if (char === '(') {
      const start = position++;
      if (++depth > maxDepth) {
        throw new CapacityError({ resource: 'grammar groups', needed: depth, available: maxDepth, unit: 'levels' });
      }
      skipSpace(true);
      const group = readAlternatives(true);
      if (text[position] !== ')') fail('group', `expected ), got ${found()}`, text[position] ? position : start);
      position++;
      depth--;
      return group;
    }
    nameAt.lastIndex = position;
    if (!nameAt.test(text)) return undefined;
    const at = position;
    const name = readName('rule');
    if (!references.has(name)) references.set(name, at);
    return { kind: 'rule', name };
  }

  function readSequence(isNested: boolean): GrammarNode {
    const items: GrammarNode[] = [];
    for (;;) {
      if (!isNested && startsRule()) break;
      const item = readItem();
      if (item === undefined) break;
      skipSpace(isNested);
      let whole = item;
      for (;;) {
        const repeated = readRepetition(whole);
        if (repeated === undefined) break;
        whole = repeated;
        skipSpace(isNested);
      }
      items.push(whole);
    }
    return items.length === 1 ? (items[0] as GrammarNode) : { kind: 'sequence', items };
  }

  const ruleAt = /[a-zA-Z0-9_-]+[ \t]*::=/y;
  function startsRule(): boolean {
    ruleAt.lastIndex = position;
    return ruleAt.test(text);
  }

  function readAlternatives(isNested: boolean): GrammarNode {
    const alternatives = [readSequence(isNested)];
    for (;;) {
      const end = position;
      skipSpace(true);
      if (text[position] !== '|') {
        position = end;
        skipSpace(isNested);
        break;
      }
      position++;
      skipSpace(true);
      alternatives.push(readSequence(isNested));
    }
    return alternatives.length === 1 ? (alternatives[0] as GrammarNode) : { kind: 'choice', alternatives };
  }

  skipSpace(true);
  while (position < text.length) {
    const at = position;
    const name = readName('rule');
    skipSpace(false);
    if (!text.startsWith('::=', position)) fail(name, `expected ::=, got ${found()}`);
    if (rules.has(name)) fail(name, 'expected one definition of this rule, got a second one', at);
    position += 3;
    skipSpace(true);
    rules.set(name, startsRule() ? { kind: 'sequence', items: [] } : readAlternatives(false));
    const end = position;
    skipSpace(true);
    const isNewLine = /[\r\n]/.test(text.slice(end, position)) || position >= text.length || startsRule();
    if (!isNewLine) fail(name, `expected the end of the line, got ${found()}`);
  }
  if (!rules.has(root)) fail(root, 'expected a rule of this name, got none', 0);
  for (const [name, at] of references) {
    if (!rules.has(name)) fail(name, 'expected a rule of this name, got none', at);
  }
  return { root, rules };
}

const escapeNames = '\\t \\r \\n \\\\ \\" \\[ \\] \\- \\^ \\xHH \\uHHHH \\UHHHHHHHH';
