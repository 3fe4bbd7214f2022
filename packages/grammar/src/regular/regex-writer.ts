/** Compiles the AST of a regular expression to states of a nondeterministic automaton. */
import type { AST } from '@eslint-community/regexpp';
import { allCodePoints, complement, intersect, normalize, type CodePoints } from '../code-points.js';
import { maxCodePoint, type CodePointRange } from '../grammar.js';
import type { Sliced } from '@winnow/tensor';
import type { WorkBudget } from '../work-budget.js';
import type { Nfa } from './nfa.js';

/** An unsupported construct, or invalid syntax. */
export class RegexRefusal extends Error {}

/** Maximum nesting of groups, since the writer recurses. */
const maxDepth = 200;

export class RegexWriter {
  readonly #nfa: Nfa;
  readonly #budget: WorkBudget;
  readonly #members = new Map<AST.Element, CodePoints>();
  readonly #nullable = new Map<AST.Element, boolean>();
  #depth = 0;

  constructor(nfa: Nfa, budget: WorkBudget) {
    this.#nfa = nfa;
    this.#budget = budget;
  }

  /**
   * Adds states and edges for an element, between two states.
   * @param isNonEmpty exclude the empty text
   */
  *write(alternatives: readonly AST.Alternative[], from: number, to: number, isNonEmpty = false): Sliced<void> {
    if (++this.#depth > maxDepth) this.#budget.refuse('groups of a pattern', this.#depth, maxDepth, 'levels');
    for (const { elements } of alternatives) {
      if (isNonEmpty && elements.every((element) => this.#canBeEmpty(element)))
        yield* this.#writeNonEmpty(elements, from, to);
      else yield* this.#writeElements(elements, from, to);
    }
    this.#depth--;
  }

  *#writeElements(elements: readonly AST.Element[], from: number, to: number): Sliced<void> {
    let state = from;
    for (const element of elements) {
      const next = this.#nfa.add();
      yield* this.#write(element, state, next, false);
      state = next;
    }
    this.#nfa.jump(state, to);
  }

  /** Nullable elements without the empty text: one alternative for each element that may be the first non-empty one. */
  *#writeNonEmpty(elements: readonly AST.Element[], from: number, to: number): Sliced<void> {
    let state: number | undefined;
    for (const element of elements) {
      const next = this.#nfa.add();
      yield* this.#write(element, from, next, true);
      if (state !== undefined) yield* this.#write(element, state, next, false);
      state = next;
    }
    if (state !== undefined) this.#nfa.jump(state, to);
  }

  *#write(element: AST.Element, from: number, to: number, isNonEmpty: boolean): Sliced<void> {
    this.#budget.spend(10);
    if (this.#budget.isSliceOver()) yield;
    switch (element.type) {
      case 'Character':
      case 'CharacterSet':
      case 'CharacterClass':
        this.#nfa.move(from, yield* this.#membersOf(element), to);
        return;
      case 'Group':
        if (element.modifiers !== null) throw new RegexRefusal('group modifiers');
        yield* this.write(element.alternatives, from, to, isNonEmpty);
        return;
      case 'CapturingGroup':
        yield* this.write(element.alternatives, from, to, isNonEmpty);
        return;
      case 'Assertion':
        if (element.kind !== 'start' && element.kind !== 'end') {
          throw new RegexRefusal(`${element.raw} at this position`);
        }
        this.#nfa.jump(from, to, element.kind);
        return;
      case 'Quantifier':
        yield* this.#writeQuantifier(element, from, to, isNonEmpty);
        return;
      default:
        throw new RegexRefusal(element.raw);
    }
  }

  /**
   * A nullable element is repeated as non-empty matches only, of which any number up to `max` will do. Otherwise one text
   * would have many paths, with empty matches at different places.
   */
  *#writeQuantifier(
    { element, min, max }: AST.Quantifier,
    from: number,
    to: number,
    isNonEmpty: boolean,
  ): Sliced<void> {
    const hasEmpty = max !== 1 && this.#canBeEmpty(element);
    const isElementNonEmpty = hasEmpty || (isNonEmpty && max === 1);
    const least = hasEmpty ? 0 : min;
    const numNeeded = isNonEmpty ? Math.max(1, least) : least;
    if (max < numNeeded) return;
    let state = from;
    for (let count = 0; count < numNeeded; count++) state = yield* this.#writeAfter(state, element, isElementNonEmpty);
    if (max === Infinity) {
      const loop = this.#nfa.add();
      this.#nfa.jump(state, loop);
      this.#nfa.jump(yield* this.#writeAfter(loop, element, isElementNonEmpty), loop);
      this.#nfa.jump(loop, to);
      return;
    }
    for (let count = numNeeded; count < max; count++) {
      this.#nfa.jump(state, to);
      state = yield* this.#writeAfter(state, element, isElementNonEmpty);
    }
    this.#nfa.jump(state, to);
  }

  /** Writes an element from a state to a new one. @returns the new state */
  *#writeAfter(state: number, element: AST.Element, isNonEmpty: boolean): Sliced<number> {
    const next = this.#nfa.add();
    yield* this.#write(element, state, next, isNonEmpty);
    return next;
  }

  /** Whether an element matches the empty text at every position; `^` and `$` match it at some positions only. */
  #canBeEmpty(element: AST.Element): boolean {
    const known = this.#nullable.get(element);
    if (known !== undefined) return known;
    const isNullable =
      element.type === 'Quantifier'
        ? !hasAssertion(element) && (element.min === 0 || this.#canBeEmpty(element.element))
        : (element.type === 'Group' || element.type === 'CapturingGroup') &&
          !hasAssertion(element) &&
          element.alternatives.some(({ elements }) => elements.every((inner) => this.#canBeEmpty(inner)));
    this.#nullable.set(element, isNullable);
    return isNullable;
  }

  /** The same object for every copy of an element, so that what depends on it is computed once. */
  *#membersOf(element: AST.Character | AST.CharacterSet | AST.CharacterClass): Sliced<CodePoints> {
    let members = this.#members.get(element);
    if (members === undefined) this.#members.set(element, (members = yield* membersOf(element, this.#budget)));
    return members;
  }
}

function hasAssertion(element: AST.Element): boolean {
  if (element.type === 'Assertion') return true;
  if (element.type === 'Quantifier') return hasAssertion(element.element);
  if (element.type !== 'Group' && element.type !== 'CapturingGroup') return false;
  return element.alternatives.some(({ elements }) => elements.some(hasAssertion));
}

type Members = AST.Character | AST.CharacterSet | AST.CharacterClass | AST.CharacterClassElement;

function* membersOf(element: Members, budget: WorkBudget): Sliced<CodePoints> {
  budget.spend(10);
  switch (element.type) {
    case 'Character':
      return normalize([[element.value, element.value]]);
    case 'CharacterClassRange':
      return normalize([[element.min.value, element.max.value]]);
    case 'CharacterSet':
      return yield* setOf(element, budget);
    case 'CharacterClass': {
      const ranges: CodePointRange[] = [];
      for (const inner of element.elements) for (const range of yield* membersOf(inner, budget)) ranges.push(range);
      const members = normalize(ranges);
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

function* setOf(element: AST.CharacterSet, budget: WorkBudget): Sliced<CodePoints> {
  if (element.kind === 'any') return complement(normalize(lineEnds));
  const members = yield* namedMembers(element, budget);
  return element.negate ? complement(members) : members;
}

function* namedMembers(
  element: Exclude<AST.CharacterSet, AST.AnyCharacterSet>,
  budget: WorkBudget,
): Sliced<CodePoints> {
  if (element.kind === 'digit') return normalize(digits);
  if (element.kind === 'word') return normalize(words);
  if (element.kind === 'space') return normalize(spaces);
  return yield* propertyMembers(element as AST.UnicodePropertyCharacterSet, budget);
}

const properties = new Map<string, CodePoints>();
/** Steps of a property: each is tested with all characters once. */
const propertySteps = 500_000;

/** @throws {CapacityError} for more properties than the budget allows */
function* propertyMembers({ key, value }: AST.UnicodePropertyCharacterSet, budget: WorkBudget): Sliced<CodePoints> {
  const name = value === null ? key : `${key}=${value}`;
  const known = properties.get(name);
  if (known !== undefined) return known;
  const run = new RegExp(`\\p{${name}}+`, 'gu');
  const ranges: CodePointRange[] = [];
  for (let begin = 0; begin <= maxCodePoint; begin += chunkSize) {
    for (const range of runsOf(run, charactersFrom(begin))) ranges.push(range);
    budget.spend(Math.ceil((propertySteps * chunkSize) / maxCodePoint));
    if (budget.isSliceOver()) yield;
  }
  const members = normalize(ranges);
  properties.set(name, members);
  return members;
}

/** Characters that are tested at once. */
const chunkSize = 2 ** 14;
/** Characters in order, to look up properties in the JavaScript engine's own tables: a text for each chunk. */
const characters = new Map<number, string>();

function charactersFrom(begin: number): string {
  let text = characters.get(begin);
  if (text === undefined) {
    text = '';
    for (const [first, last] of intersect(allCodePoints, [[begin, begin + chunkSize - 1]])) {
      for (let codePoint = first; codePoint <= last; codePoint++) text += String.fromCodePoint(codePoint);
    }
    characters.set(begin, text);
  }
  return text;
}

/** The characters that an expression such as `\p{L}+` matches, from its matches in these. */
function runsOf(run: RegExp, text: string): readonly CodePointRange[] {
  return Array.from(text.matchAll(run), ({ 0: match }): CodePointRange => {
    const isPair = (match.charCodeAt(match.length - 1) & 0xfc00) === 0xdc00;
    return [match.codePointAt(0) as number, match.codePointAt(match.length - (isPair ? 2 : 1)) as number];
  });
}
