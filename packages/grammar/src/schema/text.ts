/** Free text without matches of a pattern. */
import { allCodePoints } from '../code-points.js';
import type { GrammarNode } from '../grammar.js';
import { complementDfa, trim } from '../regular/dfa.js';
import { regexDfa } from '../regular/regex.js';
import { finish } from '@winnow/tensor';
import { WorkBudget } from '../work-budget.js';
import { automatonRules, encodePlain } from './json-text.js';

/** Any character. */
export const anyCharacter: GrammarNode = { kind: 'class', ranges: allCodePoints };

/**
 * Any text without a match of the expression, as rules whose names begin with `name`.
 * @param pattern a regular expression of ECMAScript without backreferences
 */
export function textWithout(rules: Map<string, GrammarNode>, name: string, pattern: string): GrammarNode {
  const budget = new WorkBudget('pattern');
  const matching = finish(regexDfa(pattern, budget));
  return automatonRules(trim(complementDfa(matching, budget)), rules, name, encodePlain);
}
