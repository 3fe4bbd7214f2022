/** Compiles constraints on strings to automata. */
import { accepts, intersectDfa, isEmptyDfa, lengthDfa, type Dfa } from '../regular/dfa.js';
import { escapeRegex, regexDfa, RegexRefusal, wholeRegexDfa } from '../regular/regex.js';
import type { Facts, Pattern } from './facts.js';
import { fail } from './keywords.js';

/** The conjunction of patterns and lengths; undefined when there are no constraints. */
export function stringDfa({ patterns = [], minLength = 0, maxLength }: Facts): Dfa | undefined {
  const parts = patterns.map(patternDfa);
  if (minLength > 0 || maxLength !== undefined) parts.push(lengthDfa(minLength, maxLength));
  return parts.length === 0 ? undefined : parts.reduce(intersectDfa);
}

/** Whether a string satisfies the constraints. */
export function isString(facts: Facts, text: string): boolean {
  const length = Array.from(text).length;
  if (length < (facts.minLength ?? 0) || length > (facts.maxLength ?? Infinity)) return false;
  return (facts.patterns ?? []).every((pattern) => accepts(patternDfa(pattern), text));
}

/** Exactly these texts. */
export function textsDfa(texts: readonly string[]): Dfa {
  return wholeRegexDfa(texts.length === 0 ? '[]' : texts.map(escapeRegex).join('|'));
}

const known = new WeakMap<Pattern, Dfa>();

function patternDfa(pattern: Pattern): Dfa {
  const ready = known.get(pattern);
  if (ready !== undefined) return ready;
  try {
    const dfa = pattern.isWhole ? wholeRegexDfa(pattern.source) : regexDfa(pattern.source);
    if (isEmptyDfa(dfa)) fail(pattern.path, 'a pattern that no string matches');
    known.set(pattern, dfa);
    return dfa;
  } catch (error) {
    if (error instanceof RegexRefusal)
      fail(pattern.path, `a pattern that constrained decoding does not support: ${error.message}`);
    throw error;
  }
}
