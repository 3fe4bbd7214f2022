/** GBNF: the tokens of the notation. Grammars that compile constrain a few tokens. */
import { createTokenGrammar, parseGrammar } from '@winnow/grammar';
import { mutateText } from '@winnow/test-utils';
import { bytesOf, textOf, type Target } from '../../src/target.ts';
import { follow, trie } from '../token-grammar.ts';

const examples: readonly string[] = [
  'root ::= "yes" | "no"\n',
  'root ::= object\nobject ::= "{" (pair ("," pair)*)? "}"\npair ::= string ":" value\nstring ::= "\\"" [a-z]{1,8} "\\""\n' +
    'value ::= string | object | [0-9]+ | "true"\n',
  'root ::= (item "\\n")+ # a list\nitem ::= "- " [^\\n\\x00-\\x1F]* ("!" | "?")?\n',
  'root ::= a{2,5} b?\na ::= [\\u0061-\\u007A] | a a | ""\nb ::= ("x"){0,3}\n',
  'root ::= <think> .* </think> [ \\t]* "done"\n',
];
const vocabulary: readonly string[] = [
  ...['::=', '|', '(', ')', '*', '+', '?', '{2}', '{0,}', '{,3}', '{1000000}', '{3,2}', '\n', ' ', '#', '.', '_'],
  ...['""', '"a"', '"\\x41"', '"\\u{110000}"', '"', '[', ']', '[a-z]', '[^a]', '[z-a]', '[]', '[\\]', '\\', '<', '>'],
  ...['root', 'a', 'b', 'undefined-rule', 'root ::= root', '<[1]>', '!<a>', '\u0000', '\u{1F600}'],
];
const pattern = /::=|"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|\{[^}]*\}|[\w-]+|\s+|[^]/gu;

export async function createTarget(): Promise<Target> {
  return {
    examples: examples.map(bytesOf),
    mutate: (random, input) => bytesOf(mutateText(random, textOf(input), pattern, vocabulary).slice(0, 20_000)),
    async run(input) {
      follow(createTokenGrammar({ grammar: parseGrammar(textOf(input)), trie, endTokens: [256] }));
    },
  };
}
