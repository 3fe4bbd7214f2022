/** Free text in grammars: all but what would be taken for something else. */
import { allCodePoints } from './code-points.js';
import type { GrammarNode } from './grammar.js';
import { complementDfa, trim } from './regular/dfa.js';
import { regexDfa } from './regular/regex.js';
import { automatonRules, encodePlain } from './schema/json-text.js';

/** Any character. */
export const anyCharacter: GrammarNode = { kind: 'class', ranges: allCodePoints };

/**
 * Any text in which the expression is not found, as rules whose names begin with `name`.
 * @param pattern a regular expression of ECMAScript without back references
 */
export function textWithout(rules: Map<string, GrammarNode>, name: string, pattern: string): GrammarNode {
  return automatonRules(trim(complementDfa(regexDfa(pattern))), rules, name, encodePlain);
}
