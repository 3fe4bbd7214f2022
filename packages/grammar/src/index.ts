export { parseGrammar } from './gbnf-parser.js';
export { formatGrammar } from './gbnf-writer.js';
export type { CodePointRange, Grammar, GrammarNode } from './grammar.js';
export { choice, literal, optional, repeat, ruleReference, sequence } from './grammar.js';
export {
  createTokenGrammar,
  type GrammarMatcher,
  type TokenGrammar,
  type TokenGrammarOptions,
  type TokenMask,
} from './token-grammar.js';
export { createTokenTrie, type TokenBytes, type TokenTrie } from './token-trie.js';
export { createSchemaWriter, jsonSchemaGrammar, type JsonSchemaOptions, type SchemaWriter } from './schema/convert.js';
export type { JsonSchema } from './schema/facts.js';
export { anyCharacter, textWithout } from './text.js';
