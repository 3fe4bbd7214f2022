/** Compiles constraints on strings to automata. */
import { allCodePoints } from '../code-points.js';
import { accepts, complementDfa, intersectDfa, isEmptyDfa, limitLength, trim, type Dfa } from '../regular/dfa.js';
import { RegexRefusal } from '../regular/regex-writer.js';
import { escapeRegex, regexDfa, wholeRegexDfa } from '../regular/regex.js';
import type { Sliced } from '@winnow/tensor';
import type { WorkBudget } from '../work-budget.js';
import type { Facts, Pattern } from './facts.js';
import { everyOf } from './lists.js';
import { fail, placeOf } from './located.js';

export const anyText: Dfa = { edges: [[{ on: allCodePoints, target: 0 }]], isAccepting: [true] };

/** The conjunction of patterns and lengths; undefined when there are no constraints. */
export function* stringDfa(
  { patterns = [], minLength = 0, maxLength }: Facts,
  budget: WorkBudget,
): Sliced<Dfa | undefined> {
  const whole = yield* patternsDfa(patterns, budget);
  if (whole === undefined && minLength === 0 && maxLength === undefined) return undefined;
  return yield* limitLength(whole ?? anyText, minLength, maxLength, budget);
}

/** The conjunction of patterns; undefined when there are none. */
export function* patternsDfa(patterns: readonly Pattern[], budget: WorkBudget): Sliced<Dfa | undefined> {
  let whole: Dfa | undefined;
  for (const pattern of patterns) {
    const part = yield* patternDfa(pattern, budget);
    whole = whole === undefined ? part : yield* intersectDfa(whole, part, budget);
  }
  return whole;
}

/** Whether a string satisfies the constraints. */
export function* isString(facts: Facts, text: string, budget: WorkBudget): Sliced<boolean> {
  const length = Array.from(text).length;
  if (length < (facts.minLength ?? 0) || length > (facts.maxLength ?? Infinity)) return false;
  return yield* everyOf(facts.patterns ?? [], (pattern) => matchesPattern(pattern, text, budget));
}

export function* matchesPattern(pattern: Pattern, text: string, budget: WorkBudget): Sliced<boolean> {
  budget.spend(5 * text.length);
  return accepts(yield* patternDfa(pattern, budget), text);
}

/** Exactly these texts. */
export function textsDfa(texts: readonly string[], budget: WorkBudget): Sliced<Dfa> {
  return wholeRegexDfa(texts.length === 0 ? '[]' : texts.map(escapeRegex).join('|'), budget);
}

function compiled({ source, isWhole }: Pattern, budget: WorkBudget): Sliced<Dfa> {
  return (isWhole ? wholeRegexDfa : regexDfa)(source, budget);
}

/** Automata of formats, which are few, and the work that each took. */
const knownFormats = new Map<string, { readonly dfa: Dfa; readonly numSteps: number }>();

/** Cached automata are charged, too, so that the verdict on a schema does not depend on earlier ones. */
function* formatDfa(source: string, budget: WorkBudget): Sliced<Dfa> {
  const ready = knownFormats.get(source);
  if (ready !== undefined) {
    budget.spend(ready.numSteps);
    return ready.dfa;
  }
  const before = budget.numSteps;
  const dfa = yield* wholeRegexDfa(source, budget);
  knownFormats.set(source, { dfa, numSteps: budget.numSteps - before });
  return dfa;
}

const known = new WeakMap<Pattern, Dfa>();

export function* patternDfa(pattern: Pattern, budget: WorkBudget): Sliced<Dfa> {
  const ready = known.get(pattern);
  if (ready !== undefined) return ready;
  const { place } = budget;
  budget.place = placeOf(pattern.path);
  try {
    const isFormat = pattern.isNarrow === true;
    const dfa = yield* isFormat ? formatDfa(pattern.source, budget) : compiled(pattern, budget);
    if (isEmptyDfa(dfa)) fail(pattern.path, 'a pattern that no string matches');
    const wanted = pattern.isNegated === true ? yield* trim(yield* complementDfa(dfa, budget), budget) : dfa;
    known.set(pattern, wanted);
    budget.place = place;
    return wanted;
  } catch (error) {
    if (error instanceof RegexRefusal)
      fail(pattern.path, `a pattern that constrained decoding does not support: ${error.message}`);
    throw error;
  }
}
