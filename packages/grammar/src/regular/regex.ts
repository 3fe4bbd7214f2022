/**
 * Compiles ECMAScript regular expressions to automata. Parsed by @eslint-community/regexpp; see
 * docs/decisions/0012-grammars.md.
 */
import { RegExpParser, type AST } from '@eslint-community/regexpp';
import { allCodePoints } from '../code-points.js';
import { complementDfa, intersectDfa, type Dfa } from './dfa.js';
import type { Sliced } from '@winnow/tensor';
import type { WorkBudget } from '../work-budget.js';
import { Nfa } from './nfa.js';
import { RegexRefusal, RegexWriter } from './regex-writer.js';

/** The parser cannot be interrupted: this takes it some ten milliseconds. */
const maxLength = 1 << 16;

/**
 * The texts that contain a match of the expression.
 * @throws {RegexRefusal} for backreferences, word boundaries, lookaround that is not at the beginning, and invalid
 *   syntax
 * @throws {CapacityError} when the expression is too long, or the automaton would be too large
 */
export function* regexDfa(source: string, budget: WorkBudget): Sliced<Dfa> {
  const { alternatives } = parse(source, budget);
  const [only] = alternatives;
  if (alternatives.length !== 1 || only === undefined) return yield* searchDfa(alternatives, budget);
  // lookahead directly after ^ constrains the whole text: each becomes an automaton to intersect with
  const numLeading = only.elements.findIndex((element) => !isLookahead(element) && !isStart(element));
  const leading = only.elements.slice(0, numLeading < 0 ? undefined : numLeading);
  const lookaheads = leading.filter(isLookahead);
  if (lookaheads.length === 0) return yield* searchDfa(alternatives, budget);
  if (!isStart(leading[0] as AST.Element)) throw new RegexRefusal('lookaround that does not follow ^');
  const rest = only.elements.filter((element) => !isLookahead(element));
  let dfa = yield* searchDfa([{ ...only, elements: rest }], budget);
  for (const { alternatives: inner, negate } of lookaheads) {
    const found = yield* searchDfa(inner, budget, true);
    dfa = yield* intersectDfa(dfa, negate ? yield* complementDfa(found, budget) : found, budget);
  }
  return dfa;
}

/** The texts that match the expression as a whole. */
export function wholeRegexDfa(source: string, budget: WorkBudget): Sliced<Dfa> {
  return regexDfa(`^(?:${source})$`, budget);
}

/** Escapes a text as an expression that matches it literally. */
export function escapeRegex(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/]/g, String.raw`\$&`);
}

function parse(source: string, budget: WorkBudget): AST.Pattern {
  if (source.length > maxLength) budget.refuse('length of a pattern', source.length, maxLength, 'characters');
  budget.spend(50 * source.length);
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

function* searchDfa(alternatives: readonly AST.Alternative[], budget: WorkBudget, isAtStart = false): Sliced<Dfa> {
  const nfa = new Nfa(budget);
  const [start, end] = [nfa.add(), nfa.add()];
  if (!isAtStart) nfa.move(start, allCodePoints, start);
  const body = nfa.add();
  nfa.jump(start, body);
  yield* new RegexWriter(nfa, budget).write(alternatives, body, end);
  // any suffix; a separate state, because `$` leads to `end` only after the last character
  const after = nfa.add();
  nfa.jump(end, after);
  nfa.move(after, allCodePoints, after);
  return yield* nfa.determinize(start, after);
}
