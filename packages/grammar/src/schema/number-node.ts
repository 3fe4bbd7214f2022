/** Numbers of schemas as grammar nodes. */
import { finish, type Sliced } from '@winnow/tensor';
import { choice, literal, optional, sequence, type GrammarNode } from '../grammar.js';
import { intersectDfa, multipleDfa, type Dfa } from '../regular/dfa.js';
import { wholeRegexDfa } from '../regular/regex.js';
import type { WorkBudget } from '../work-budget.js';
import type { Bound, Facts } from './facts.js';
import { encodePlain } from './json-text.js';
import {
  anyDecimal,
  decimalRegex,
  dividesIntegers,
  divisorOf,
  exactRegex,
  integerRegex,
  type Divisor,
} from './numbers.js';
import type { SharedRules } from './shared-rules.js';

export interface NumberWriter {
  readonly rules: SharedRules;
  /** A node of the texts of an automaton, under a name of its own. */
  automaton(dfa: Dfa): Sliced<GrammarNode>;
}

const belowZero: Bound = { value: 0, isExclusive: true, path: '' };

/** The JSON texts of numbers within bounds that are multiples of divisors; without `isDecimal`, of integers. */
export function* numberNode(
  { minimum, maximum, divisors: all = [] }: Pick<Facts, 'minimum' | 'maximum' | 'divisors'>,
  isDecimal: boolean,
  writer: NumberWriter,
): Sliced<GrammarNode> {
  const { rules } = writer;
  const divisors = isDecimal ? all : all.filter((divisor) => !dividesIntegers(divisor));
  if (isDecimal && minimum === undefined && maximum === undefined && divisors.length === 0) {
    return rules.shared('json-number', () =>
      finish(rules.automaton(finish(wholeRegexDfa(anyDecimal, rules.budget)), 'json-n', encodePlain)),
    );
  }
  if (!isDecimal && divisors.length > 0 && maximum === undefined && (minimum?.value ?? 0) <= 0) {
    return yield* multiplesNode(divisors, minimum, writer);
  }
  const regex = isDecimal ? decimalRegex(minimum, maximum) : integerRegex(minimum, maximum, all.length > 0);
  if (regex === undefined) return { kind: 'choice', alternatives: [] };
  const numbers = yield* wholeRegexDfa(regex, rules.budget);
  const dfa = yield* withDivisors(numbers, divisors, rules.budget);
  return yield* writer.automaton(dfa);
}

/** Multiples that a double represents exactly: with 16 digits only those below 9e15, since 2^53 is about 9.007e15. */
function* multiplesNode(
  divisors: readonly number[],
  minimum: Bound | undefined,
  writer: NumberWriter,
): Sliced<GrammarNode> {
  const positive = choice(
    yield* multiplesOfDigits('[1-8]', 16, divisors, writer.rules),
    yield* multiplesOfDigits('9', 15, divisors, writer.rules),
  );
  if (minimum === undefined) return choice(literal('0'), sequence(optional(literal('-')), positive));
  if (minimum.value === 0) return minimum.isExclusive ? positive : choice(literal('0'), positive);
  const facts = { minimum, maximum: belowZero, divisors };
  return choice(literal('0'), positive, yield* numberNode(facts, false, writer));
}

function* multiplesOfDigits(
  first: string,
  max: number,
  divisors: readonly number[],
  rules: SharedRules,
): Sliced<GrammarNode> {
  const digits = yield* wholeRegexDfa(`${first}\\d*`, rules.budget);
  const dfa = yield* withDivisors(digits, divisors, rules.budget);
  return yield* rules.countedAutomaton(dfa, { min: 1, max }, encodePlain);
}

function* withDivisors(numbers: Dfa, divisors: readonly number[], budget: WorkBudget): Sliced<Dfa> {
  let rest = numbers;
  for (const divisor of divisors) {
    const { numerator, numDigits, numZeros } = divisorOf(divisor) as Divisor;
    rest = yield* intersectDfa(rest, yield* multipleDfa(numerator, numDigits, budget), budget);
    if (numDigits === 0 && numZeros === 0) continue;
    const exact = yield* wholeRegexDfa(exactRegex({ numDigits, numZeros }), budget);
    rest = yield* intersectDfa(rest, exact, budget);
  }
  return rest;
}
