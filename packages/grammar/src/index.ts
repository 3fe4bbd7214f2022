export { parseGrammar, parseGrammarSliced, type ParseLimits } from './gbnf/gbnf-parser.js';
export { formatGrammar } from './gbnf/gbnf-writer.js';
export { Deadline, type TimeLimit } from './deadline.js';
export type { AutomatonState, CodePointRange, Grammar, GrammarNode, Origin } from './grammar.js';
export { choice, literal, optional, repeat, ruleReference, sequence } from './grammar.js';
export {
  createTokenGrammar,
  createTokenGrammarSliced,
  type GrammarMatcher,
  type TokenGrammar,
  type TokenGrammarOptions,
} from './tokens/token-grammar.js';
export type { TokenMask } from './tokens/token-masks.js';
export { createTokenTrie, createTokenTrieSliced, type TokenBytes, type TokenTrie } from './tokens/token-trie.js';
export {
  createSchemaWriter,
  jsonSchemaGrammar,
  jsonSchemaGrammarSliced,
  type JsonSchemaOptions,
  type SchemaWriter,
} from './schema/convert.js';
export type { JsonSchema } from './schema/facts.js';
export { anyCharacter, textWithout } from './schema/text.js';
