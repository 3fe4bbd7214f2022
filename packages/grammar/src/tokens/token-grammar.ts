/** A grammar over the tokens of a vocabulary: computes token masks. */
import { Automaton, deadState } from '../automaton/automaton.js';
import type { Configuration } from '../automaton/closure.js';
import type { Grammar } from '../grammar.js';
import { compileNetwork, type Network } from '../network/network.js';
import { finish, type Sliced } from '../sliced.js';
import type { TokenTrie } from './token-trie.js';
import { checkOptions, LruMap, type OptionNames } from '@winnow/tensor';

/** Tokens that may come next. Shared between matchers: do not modify. */
export interface TokenMask {
  /** Bit `id & 31` of word `id >> 5`. */
  readonly bits: Uint32Array; // [ceil(vocabSize / 32)]
  /** Number of set bits. */
  readonly numTokens: number;
}

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
  /** Maximum number of bytes of cached masks. Default 16 MiB. */
  readonly maxMaskBytes?: number;
}

const tokenGrammarNames: OptionNames<TokenGrammarOptions> = {
  ...{ grammar: true, trie: true, endTokens: true, maxMaskBytes: true },
};

const defaultMaskBytes = 16 * 2 ** 20;

/**
 * Masks are computed on first use by one walk of the token trie that skips the subtrees of bytes that cannot follow:
 * the cost is linear in the visited nodes. They are cached per grammar state; a quoted string has only one, however
 * long it is.
 * @throws {FormatError} for missing or left-recursive rules
 * @throws {CapacityError} for grammars that are too large
 */
export function createTokenGrammar(options: TokenGrammarOptions): TokenGrammar {
  return finish(createTokenGrammarSliced(options));
}

/** The same in slices. */
export function* createTokenGrammarSliced(options: TokenGrammarOptions): Sliced<TokenGrammar> {
  checkOptions(options, tokenGrammarNames);
  const masks = new TokenMasks(yield* compileNetwork(options.grammar), options);
  return {
    start: () => new TokenMatcher(masks, masks.automaton.configuration(masks.automaton.startState)),
    statistics: () => masks.statistics(),
  };
}

/** The masks of one grammar; the least recently used ones go first. */
class TokenMasks {
  readonly automaton: Automaton;
  readonly trie: TokenTrie;
  readonly ends: ReadonlySet<number>;
  readonly #numWords: number;
  readonly #maxMasks: number;
  readonly #masks = new LruMap<number, TokenMask>();
  readonly #trail: Int32Array;
  #epoch: number;
  #numWalks = 0;
  #numVisitedNodes = 0;

  constructor(network: Network, { trie, endTokens = [], maxMaskBytes = defaultMaskBytes }: TokenGrammarOptions) {
    this.automaton = new Automaton(network);
    this.trie = trie;
    this.ends = new Set(endTokens.filter((id) => id >= 0 && id < trie.vocabSize));
    this.#numWords = Math.ceil(trie.vocabSize / 32);
    this.#maxMasks = Math.max(1, Math.floor(maxMaskBytes / (this.#numWords * 4)));
    this.#trail = new Int32Array(trie.maxDepth + 1);
    this.#epoch = this.automaton.epoch;
  }

  statistics(): { readonly numMasks: number; readonly numWalks: number; readonly numVisitedNodes: number } {
    return { numMasks: this.#masks.size, numWalks: this.#numWalks, numVisitedNodes: this.#numVisitedNodes };
  }

  of(state: number): TokenMask {
    const automaton = this.automaton;
    const masks = this.#masks;
    if (this.#epoch !== automaton.epoch) masks.clear();
    this.#epoch = automaton.epoch;
    const ready = masks.get(state);
    if (ready !== undefined) return ready;
    const bits = new Uint32Array(this.#numWords);
    let numTokens = automaton.isEnd(state) ? 0 : this.#walk(state, bits);
    if (automaton.isAccepting(state)) {
      for (const id of this.ends) {
        const [word, bit] = [id >> 5, 1 << (id & 31)];
        if (((bits[word] as number) & bit) === 0) numTokens++;
        bits[word] = (bits[word] as number) | bit;
      }
    }
    const mask = { bits, numTokens };
    masks.set(state, mask);
    masks.evict(this.#maxMasks);
    return mask;
  }

  /** One pass over the nodes. @returns the number of tokens */
  #walk(state: number, bits: Uint32Array): number {
    const { numNodes, bytes, depths, ends: subtreeEnds, firstTokens, tokens } = this.trie;
    const automaton = this.automaton;
    const states = this.#trail;
    const { classOfByte, numClasses } = automaton;
    let { table } = automaton;
    let numTokens = 0;
    let numVisited = 0;
    states[0] = state;
    for (let node = 0; node < numNodes;) {
      numVisited++;
      const depth = depths[node];
      const from = states[depth];
      const byteClass = classOfByte[bytes[node]];
      let next = table[from * numClasses + byteClass];
      if (next < deadState) {
        next = automaton.step(from, byteClass);
        table = automaton.table;
      }
      if (next === deadState) {
        node = subtreeEnds[node];
        continue;
      }
      states[depth + 1] = next;
      const last = firstTokens[node + 1];
      for (let i = firstTokens[node]; i < last; i++) {
        const id = tokens[i];
        bits[id >> 5] |= 1 << (id & 31);
        numTokens++;
      }
      node++;
    }
    this.#numWalks++;
    this.#numVisitedNodes += numVisited;
    return numTokens;
  }
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
    const { automaton, trie, ends } = this.#masks;
    let next = this.#current();
    if (ends.has(tokenId)) return automaton.isAccepting(next);
    const bytes = trie.bytesOf(tokenId);
    if (bytes === undefined || bytes.length === 0) return false;
    for (const byte of bytes) {
      next = automaton.step(next, automaton.classOfByte[byte] as number);
      if (next === deadState) return false;
    }
    this.#state = next;
    this.#configuration = automaton.configuration(next);
    return true;
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
