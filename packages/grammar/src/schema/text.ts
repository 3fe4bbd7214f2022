/** Free text without matches of a pattern. */
import { allCodePoints } from '../code-points.js';
import type { GrammarNode } from '../grammar.js';
import { complementDfa, trim } from '../regular/dfa.js';
import { regexDfa } from '../regular/regex.js';
import { finish, type Sliced } from '@winnow/tensor';
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
  return finish(textRules());

  function* textRules(): Sliced<GrammarNode> {
    const others = yield* complementDfa(yield* regexDfa(pattern, budget), budget);
    return yield* automatonRules(yield* trim(others, budget), { rules, budget, encode: encodePlain }, name);
  }
}
