/** Constrained generation: what grammar and schema options leave of the vocabulary at each step. */
import {
  createTokenGrammar,
  createTokenTrie,
  formatGrammar,
  jsonSchemaGrammar,
  parseGrammar,
  type Grammar,
  type GrammarMatcher,
  type JsonSchema,
  type TokenGrammar,
  type TokenMask,
  type TokenTrie,
} from '@winnow/grammar';
import { ArgumentError } from '@winnow/tensor';
import type { Tokenizer } from '@winnow/tokenizers';

/** The options that constrain. */
export interface ConstraintOptions {
  readonly grammar?: string | Grammar;
  readonly jsonSchema?: JsonSchema;
  readonly showTokens?: readonly string[];
  readonly ignoreEos?: boolean;
}

/** Where the text of one generation stands. */
export interface Constraint {
  /** Tokens that may come next. @throws {ArgumentError} when there is none */
  mask(): TokenMask;
  /** Makes the mask ready ahead of time. */
  prepare(): void;
  /** A token was chosen. */
  accept(tokenId: number): void;
  /** The text matches, and nothing can follow. */
  readonly isComplete: boolean;
}

export interface Constraints {
  /**
   * Undefined without a grammar or schema.
   * @throws {FormatError} for texts that are no grammar, schemas that cannot be enforced
   * @throws {ArgumentError} for both at once, and for tokens to show that the vocabulary does not have
   */
  start(options: ConstraintOptions): Constraint | undefined;
  /** Spellings of control tokens to show, by id. */
  shownTokens(options: ConstraintOptions): ReadonlyMap<number, string>;
}

/** Grammars that are kept with their masks, the last ones used. */
const maxGrammars = 8;

/** @param vocabSize rows of the logits; rows that the tokenizer does not know are never allowed */
export function createConstraints(tokenizer: Tokenizer, vocabSize: number, eosIds: ReadonlySet<number>): Constraints {
  const tries = new Map<string, TokenTrie>();
  const grammars = new Map<string, TokenGrammar>();

  function shownTokens({ showTokens = [] }: ConstraintOptions): ReadonlyMap<number, string> {
    return new Map(
      showTokens.map((text) => {
        const id = tokenizer.idOf(text);
        if (id !== undefined) return [id, text];
        const expected = 'tokens of the vocabulary';
        throw new ArgumentError({ argument: 'showTokens', expected, actual: JSON.stringify(text) });
      }),
    );
  }

  function trieOf(options: ConstraintOptions): TokenTrie {
    const shown = shownTokens(options);
    const key = JSON.stringify([...shown.keys()].sort((a, b) => a - b));
    let trie = tries.get(key);
    if (trie === undefined) {
      trie = createTokenTrie({
        vocabSize,
        tokenBytes(id): Uint8Array | undefined {
          if (id >= tokenizer.vocabSize) return undefined;
          const isHidden = !shown.has(id) && (eosIds.has(id) || tokenizer.isSpecial(id));
          return isHidden ? undefined : tokenizer.tokenBytes(id);
        },
      });
      tries.set(key, trie);
    }
    return trie;
  }

  function tokenGrammarOf(options: ConstraintOptions): TokenGrammar {
    const { grammar, jsonSchema, showTokens = [], ignoreEos = false } = options;
    const source = jsonSchema === undefined ? textOf(grammar as string | Grammar) : JSON.stringify(jsonSchema);
    const key = JSON.stringify([jsonSchema === undefined, source, [...showTokens].sort(), ignoreEos]);
    let tokens = grammars.get(key);
    if (tokens === undefined) {
      const rules = jsonSchema === undefined ? asGrammar(grammar as string | Grammar) : jsonSchemaGrammar(jsonSchema);
      const endTokens = ignoreEos ? [] : [...eosIds];
      tokens = createTokenGrammar({ grammar: rules, trie: trieOf(options), endTokens });
    }
    grammars.delete(key); // the one used last comes last
    grammars.set(key, tokens);
    if (grammars.size > maxGrammars) grammars.delete(grammars.keys().next().value as string);
    return tokens;
  }

  return {
    shownTokens,
    start(options): Constraint | undefined {
      const { grammar, jsonSchema } = options;
      if (grammar === undefined && jsonSchema === undefined) return undefined;
      if (grammar !== undefined && jsonSchema !== undefined) {
        const [expected, actual] = ['a grammar or a JSON schema', 'both'];
        throw new ArgumentError({ argument: 'grammar', expected, actual });
      }
      return createConstraint(tokenGrammarOf(options).start());
    },
  };
}

function createConstraint(matcher: GrammarMatcher): Constraint {
  return {
    mask(): TokenMask {
      const mask = matcher.mask();
      if (mask.numTokens > 0) return mask;
      const [expected, actual] = ['one that goes on in tokens of this vocabulary', 'no token that may follow'];
      throw new ArgumentError({ argument: 'grammar', expected, actual });
    },
    prepare(): void {
      try {
        matcher.mask();
      } catch {
        // it fails again where it can be reported
      }
    },
    accept: (tokenId) => void matcher.accept(tokenId),
    get isComplete(): boolean {
      return matcher.canEnd && matcher.isComplete;
    },
  };
}

function asGrammar(grammar: string | Grammar): Grammar {
  return typeof grammar === 'string' ? parseGrammar(grammar) : grammar;
}

const texts = new WeakMap<Grammar, string>();

/** A grammar as text, which names the same texts when it is parsed. */
export function textOf(grammar: string | Grammar): string {
  if (typeof grammar === 'string') return grammar;
  let text = texts.get(grammar);
  if (text === undefined) texts.set(grammar, (text = formatGrammar(grammar)));
  return text;
}
