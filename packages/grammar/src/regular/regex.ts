/**
 * Compiles ECMAScript regular expressions to automata. Parsed by @eslint-community/regexpp; see
 * docs/decisions/0012-grammars.md.
 */
import { RegExpParser, type AST } from '@eslint-community/regexpp';
import { allCodePoints, complement, normalize, type CodePoints } from '../code-points.js';
import { maxCodePoint, type CodePointRange } from '../grammar.js';
import { complementDfa, intersectDfa, type Dfa } from './dfa.js';
import { Nfa } from './nfa.js';

/** An unsupported construct, or invalid syntax. */
export class RegexRefusal extends Error {}

/**
 * The texts that contain a match of the expression.
 * @throws {RegexRefusal} for backreferences, word boundaries, lookaround that is not at the beginning, and invalid
 *   syntax
 * @throws {CapacityError} when the automaton would be too large
 */
export function regexDfa(source: string): Dfa {
  const { alternatives } = parse(source);
  const [only] = alternatives;
  if (alternatives.length !== 1 || only === undefined) return searchDfa(alternatives);
  // lookahead directly after ^ constrains the whole text: each becomes an automaton to intersect with
  const numLeading = only.elements.findIndex((element) => !isLookahead(element) && !isStart(element));
  const leading = only.elements.slice(0, numLeading < 0 ? undefined : numLeading);
  const lookaheads = leading.filter(isLookahead);
  if (lookaheads.length === 0) return searchDfa(alternatives);
  if (!isStart(leading[0] as AST.Element)) throw new RegexRefusal('lookaround that does not follow ^');
  const rest = only.elements.filter((element) => !isLookahead(element));
  let dfa = searchDfa([{ ...only, elements: rest }]);
  for (const { alternatives: inner, negate } of lookaheads) {
    const found = searchDfa(inner, true);
    dfa = intersectDfa(dfa, negate ? complementDfa(found) : found);
  }
  return dfa;
}

/** The texts that match the expression as a whole. */
export function wholeRegexDfa(source: string): Dfa {
  return regexDfa(`^(?:${source})$`);
}

/** Escapes a text as an expression that matches it literally. */
export function escapeRegex(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/]/g, String.raw`\$&`);
}

function parse(source: string): AST.Pattern {
  const parser = new RegExpParser({ ecmaVersion: 2025 });
  let failure: unknown;
  for (const unicode of [true, false]) {
    try {
      return parser.parsePattern(source, 0, source.length, { unicode });
    } catch (error) {
      failure ??= error;
    }
  }
  throw new RegexRefusal(failure instanceof Error ? failure.message : String(failure));
}

function isStart(element: AST.Element): boolean {
  return element.type === 'Assertion' && element.kind === 'start';
}

function isLookahead(element: AST.Element): element is AST.LookaheadAssertion {
  return element.type === 'Assertion' && element.kind === 'lookahead';
}

function searchDfa(alternatives: readonly AST.Alternative[], isAtStart = false): Dfa {
  const nfa = new Nfa();
  const [start, end] = [nfa.add(), nfa.add()];
  if (!isAtStart) nfa.move(start, allCodePoints, start);
  const body = nfa.add();
  nfa.jump(start, body);
  writeAlternatives(nfa, alternatives, body, end);
  // any suffix; a separate state, because `$` leads to `end` only after the last character
  const after = nfa.add();
  nfa.jump(end, after);
  nfa.move(after, allCodePoints, after);
  return nfa.determinise(start, after);
}

function writeAlternatives(nfa: Nfa, alternatives: readonly AST.Alternative[], from: number, to: number): void {
  for (const { elements } of alternatives) {
    let state = from;
    for (const element of elements) {
      const next = nfa.add();
      write(nfa, element, state, next);
      state = next;
    }
    nfa.jump(state, to);
  }
}

function write(nfa: Nfa, element: AST.Element, from: number, to: number): void {
  switch (element.type) {
    case 'Character':
    case 'CharacterSet':
    case 'CharacterClass':
      nfa.move(from, membersOf(element), to);
      return;
    case 'Group':
      if (element.modifiers !== null) throw new RegexRefusal('group modifiers');
      writeAlternatives(nfa, element.alternatives, from, to);
      return;
    case 'CapturingGroup':
      writeAlternatives(nfa, element.alternatives, from, to);
      return;
    case 'Assertion':
      if (element.kind !== 'start' && element.kind !== 'end') throw new RegexRefusal(`${element.raw} at this position`);
      nfa.jump(from, to, element.kind);
      return;
    case 'Quantifier': {
      let state = from;
      for (let count = 0; count < element.min; count++) {
        const next = nfa.add();
        write(nfa, element.element, state, next);
        state = next;
      }
      if (element.max === Infinity) {
        const loop = nfa.add();
        nfa.jump(state, loop);
        const end = nfa.add();
        write(nfa, element.element, loop, end);
        nfa.jump(end, loop);
        nfa.jump(loop, to);
        return;
      }
      for (let count = element.min; count < element.max; count++) {
        nfa.jump(state, to);
        const next = nfa.add();
        write(nfa, element.element, state, next);
        state = next;
      }
      nfa.jump(state, to);
      return;
    }
    default:
      throw new RegexRefusal(element.raw);
  }
}

type Members = AST.Character | AST.CharacterSet | AST.CharacterClass | AST.CharacterClassElement;

function membersOf(element: Members): CodePoints {
  switch (element.type) {
    case 'Character':
      return normalize([[element.value, element.value]]);
    case 'CharacterClassRange':
      return normalize([[element.min.value, element.max.value]]);
    case 'CharacterSet':
      return setOf(element);
    case 'CharacterClass': {
      const members = normalize(element.elements.flatMap((inner) => [...membersOf(inner)]));
      return element.negate ? complement(members) : members;
    }
    default:
      throw new RegexRefusal(element.raw);
  }
}

const digits: readonly CodePointRange[] = [[0x30, 0x39]];
const words: readonly CodePointRange[] = [...digits, [0x41, 0x5a], [0x5f, 0x5f], [0x61, 0x7a]];
const spaces: readonly CodePointRange[] = [
  [0x09, 0x0d],
  [0x20, 0x20],
  [0xa0, 0xa0],
  [0x1680, 0x1680],
  [0x2000, 0x200a],
  [0x2028, 0x2029],
  [0x202f, 0x202f],
  [0x205f, 0x205f],
  [0x3000, 0x3000],
  [0xfeff, 0xfeff],
];
const lineEnds: readonly CodePointRange[] = [
  [0x0a, 0x0a],
  [0x0d, 0x0d],
  [0x2028, 0x2029],
];

function setOf(element: AST.CharacterSet): CodePoints {
  if (element.kind === 'any') return complement(normalize(lineEnds));
  const members = (): CodePoints => {
    if (element.kind === 'digit') return normalize(digits);
    if (element.kind === 'word') return normalize(words);
    if (element.kind === 'space') return normalize(spaces);
    return propertyMembers(element as AST.UnicodePropertyCharacterSet);
  };
  return element.negate ? complement(members()) : members();
}

const properties = new Map<string, CodePoints>();

/** Queries the JavaScript engine's own tables character by character. */
function propertyMembers({ key, value }: AST.UnicodePropertyCharacterSet): CodePoints {
  const name = value === null ? key : `${key}=${value}`;
  let members = properties.get(name);
  if (members === undefined) properties.set(name, (members = matchedBy(new RegExp(`\\p{${name}}`, 'u'))));
  return members;
}

function matchedBy(pattern: RegExp): CodePoints {
  const ranges: [number, number][] = [];
  for (let codePoint = 0; codePoint <= maxCodePoint; codePoint++) {
    if (!pattern.test(String.fromCodePoint(codePoint))) continue;
    const previous = ranges.at(-1);
    if (previous !== undefined && previous[1] + 1 === codePoint) previous[1] = codePoint;
    else ranges.push([codePoint, codePoint]);
  }
  return normalize(ranges);
}
