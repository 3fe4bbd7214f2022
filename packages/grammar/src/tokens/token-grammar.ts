/** A grammar over the tokens of a vocabulary: computes token masks. */
import { Automaton, deadState } from '../automaton/automaton.js';
import type { Configuration } from '../automaton/closure.js';
import type { Grammar } from '../grammar.js';
import { compileNetwork, type Network } from '../network/network.js';
import { firstToken, otherToken, type IdOfToken } from '../network/writer.js';
import { freeTextOf, textRunOf } from './text-runs.js';
import type { TokenTrie } from './token-trie.js';
import type { TimeLimit } from '../deadline.js';
import { WorkBudget } from '../work-budget.js';
import { FormatError, checkOptions, LruMap, type OptionNames, finish, type Sliced } from '@winnow/tensor';

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

/** The masks of one grammar; the least recently used ones go first. */
class TokenMasks {
  readonly automaton: Automaton;
  readonly trie: TokenTrie;
  readonly ends: ReadonlySet<number>;
  /** Symbols of the tokens that the grammar names, by their ids. */
  readonly #symbols: ReadonlyMap<number, number>;
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
    this.#symbols = new Map(network.tokenIds.map((id, index) => [id, firstToken + index]));
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
    if (!automaton.isEnd(state)) {
      this.#addTexts(state, bits);
      this.#addNamed(state, bits);
    }
    if (automaton.isAccepting(state)) for (const id of this.ends) setBit(bits, id);
    const mask = { bits, numTokens: countBits(bits) };
    masks.set(state, mask);
    masks.evict(this.#maxMasks);
    return mask;
  }

  /** The state after a token as a whole, whatever its bytes are. */
  afterToken(state: number, id: number): number {
    if (this.#symbols.size === 0) return deadState;
    const symbol = this.#symbols.get(id) ?? (this.trie.bytesOf(id) === undefined ? undefined : otherToken);
    return symbol === undefined
      ? deadState
      : this.automaton.step(state, this.automaton.classOfSymbol[symbol] as number);
  }

  #addNamed(state: number, bits: Uint32Array): void {
    if (this.#symbols.size === 0) return;
    for (const id of this.#symbols.keys()) if (this.afterToken(state, id) !== deadState) setBit(bits, id);
    if (this.automaton.step(state, this.automaton.classOfSymbol[otherToken] as number) === deadState) return;
    for (const id of this.trie.tokens) if (!this.#symbols.has(id)) setBit(bits, id);
  }

  /** Tokens by their bytes. Inside free text, only those with other characters need a walk. */
  #addTexts(state: number, bits: Uint32Array): void {
    const { automaton, trie } = this;
    this.#numWalks++;
    const text = freeTextOf(state, (from, byte) => automaton.step(from, automaton.classOfSymbol[byte] as number));
    if (text === undefined) {
      this.#walk(state, 0, trie.numNodes, bits);
      return;
    }
    const { bits: known, exits, numBefore } = textRunOf(trie, text);
    bits.set(known);
    const { states } = text;
    for (let i = 0; i < exits.length; i++) {
      const [before, node] = [states[numBefore[i]!]!, exits[i]!];
      const first = automaton.step(before, automaton.classOfSymbol[trie.bytes[node]!]!);
      if (first !== deadState) this.#walk(before, node, trie.ends[node]!, bits);
    }
  }

  /** One pass over nodes that the same text precedes. @param state after this text */
  #walk(state: number, begin: number, end: number, bits: Uint32Array): void {
    const { bytes, depths, ends: subtreeEnds, firstTokens, tokens } = this.trie;
    const automaton = this.automaton;
    const states = this.#trail;
    const { classOfSymbol, numClasses } = automaton;
    let { table } = automaton;
    let numVisited = 0;
    if (begin < end) states[depths[begin]] = state;
    for (let node = begin; node < end;) {
      numVisited++;
      const depth = depths[node];
      const from = states[depth];
      const byteClass = classOfSymbol[bytes[node]];
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
      }
      node++;
    }
    this.#numVisitedNodes += numVisited;
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

function setBit(bits: Uint32Array, id: number): void {
  bits[id >> 5] = (bits[id >> 5] as number) | (1 << (id & 31));
}

function countBits(bits: Uint32Array): number {
  let count = 0;
  for (let word of bits) {
    word -= (word >>> 1) & 0x55555555;
    word = (word & 0x33333333) + ((word >>> 2) & 0x33333333);
    count += Math.imul((word + (word >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24;
  }
  return count;
}
