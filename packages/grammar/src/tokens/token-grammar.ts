/** A grammar over the tokens of a vocabulary: computes token masks. */
import { deadState } from '../automaton/automaton.js';
import type { Configuration } from '../automaton/closure.js';
import type { Grammar } from '../grammar.js';
import { compileNetwork } from '../network/network.js';
import type { IdOfToken } from '../network/writer.js';
import { TokenMasks, type TokenMask } from './token-masks.js';
import type { TokenTrie } from './token-trie.js';
import type { TimeLimit } from '../deadline.js';
import { WorkBudget } from '../work-budget.js';
import { FormatError, checkOptions, type OptionNames, finish, type Sliced } from '@winnow/tensor';

/** The state of one text. */
export interface GrammarMatcher {
  /** Tokens after which the text is still a prefix of a match, and the end tokens if the text may end here. */
  mask(): TokenMask;
  /**
   * Advances by a token. Returns false, without any change, when the text would no longer match; end tokens match where
   * the text may end.
   */
  accept(tokenId: number): boolean;
  /** Whether the text is a complete match. */
  readonly canEnd: boolean;
  /** Whether nothing can follow. */
  readonly isComplete: boolean;
  /** A copy in the same state. */
  fork(): GrammarMatcher;
}

export interface TokenGrammar {
  /** Creates a matcher at the start of a text. */
  start(): GrammarMatcher;
  /** Cache statistics. */
  statistics(): { readonly numMasks: number; readonly numWalks: number; readonly numVisitedNodes: number };
}

export interface TokenGrammarOptions {
  readonly grammar: Grammar;
  readonly trie: TokenTrie;
  /** Tokens that end the text. */
  readonly endTokens?: readonly number[];
  /** The id of the token with this whole text, for tokens that the grammar names. Default: none is known. */
  readonly tokenId?: (text: string) => number | undefined;
  /** Maximum number of bytes of cached masks. Default 16 MiB. */
  readonly maxMaskBytes?: number;
  /** Rejects a grammar that takes too long. Default: none. */
  readonly deadline?: TimeLimit;
}

const tokenGrammarNames: OptionNames<TokenGrammarOptions> = {
  grammar: true,
  trie: true,
  endTokens: true,
  tokenId: true,
  maxMaskBytes: true,
  deadline: true,
};

/**
 * Masks are computed on first use by a walk of the token trie: the cost is linear in the visited nodes. They are cached per
 * grammar state; a quoted string has only one, however long it is.
 * @throws {FormatError} for missing or left-recursive rules
 * @throws {CapacityError} for grammars that are too large
 */
export function createTokenGrammar(options: TokenGrammarOptions): TokenGrammar {
  return finish(createTokenGrammarSliced(options));
}

/** The same in slices. */
export function* createTokenGrammarSliced(options: TokenGrammarOptions): Sliced<TokenGrammar> {
  checkOptions(options, tokenGrammarNames);
  const { grammar, deadline } = options;
  const budget = new WorkBudget('grammar', { deadline, originOf: grammar.originOf });
  const masks = new TokenMasks(yield* compileNetwork(grammar, idOfToken(options), budget), options);
  return {
    start: () => new TokenMatcher(masks, masks.automaton.configuration(masks.automaton.startState)),
    statistics: () => masks.statistics(),
  };
}

function idOfToken({ trie, tokenId }: TokenGrammarOptions): IdOfToken {
  return (token) => {
    const id = typeof token === 'number' ? token : tokenId?.(token);
    if (id !== undefined && id < trie.vocabSize) return id;
    const field = typeof token === 'number' ? `<[${token}]>` : token;
    throw new FormatError({ source: 'grammar', field, message: 'expected a token of the vocabulary' });
  };
}

class TokenMatcher implements GrammarMatcher {
  readonly #masks: TokenMasks;
  #configuration: Configuration;
  #state: number;
  #epoch: number;

  constructor(masks: TokenMasks, configuration: Configuration) {
    this.#masks = masks;
    this.#configuration = configuration;
    this.#state = masks.automaton.stateOf(configuration);
    this.#epoch = masks.automaton.epoch;
  }

  mask(): TokenMask {
    return this.#masks.of(this.#current());
  }

  accept(tokenId: number): boolean {
    const { automaton, ends } = this.#masks;
    const state = this.#current();
    const named = this.#masks.afterToken(state, tokenId);
    if (named === deadState && ends.has(tokenId)) return automaton.isAccepting(state);
    const next = automaton.union(named, this.#afterBytes(state, tokenId));
    if (next === deadState) return false;
    this.#state = next;
    this.#configuration = automaton.configuration(next);
    return true;
  }

  #afterBytes(state: number, tokenId: number): number {
    const { automaton, trie } = this.#masks;
    const bytes = trie.bytesOf(tokenId);
    if (bytes === undefined) return deadState;
    let next = state;
    for (const byte of bytes) {
      next = automaton.step(next, automaton.classOfSymbol[byte] as number);
      if (next === deadState) return deadState;
    }
    return next;
  }

  get canEnd(): boolean {
    return this.#masks.automaton.isAccepting(this.#current());
  }

  get isComplete(): boolean {
    return this.#masks.automaton.isEnd(this.#current());
  }

  fork(): GrammarMatcher {
    return new TokenMatcher(this.#masks, this.#configuration);
  }

  /** The current state number, looked up again after states were discarded. */
  #current(): number {
    const { automaton } = this.#masks;
    automaton.begin();
    if (this.#epoch !== automaton.epoch) {
      this.#state = automaton.stateOf(this.#configuration);
      this.#configuration = automaton.configuration(this.#state);
      this.#epoch = automaton.epoch;
    }
    return this.#state;
  }
}
