/** A grammar over the tokens of a vocabulary: which of them may come next. */
import { createAutomaton, deadState, type Automaton, type Configuration } from './automaton.js';
import { compileNetwork } from './compile.js';
import type { Grammar } from './grammar.js';
import type { TokenTrie } from './token-trie.js';

/** Tokens that may come next. Shared between matchers: not to be changed. */
export interface TokenMask {
  /** Bit `id & 31` of word `id >> 5`. */
  readonly bits: Uint32Array; // [ceil(vocabSize / 32)]
  /** How many. */
  readonly numTokens: number;
}

/** Where one text stands. */
export interface GrammarMatcher {
  /** Tokens that keep the text a beginning of one that matches, and the end tokens where the text may end. */
  mask(): TokenMask;
  /** Takes a token. False, and nothing changes, when the text would no longer match; end tokens match where it may end. */
  accept(tokenId: number): boolean;
  /** The text matches as it is. */
  readonly canEnd: boolean;
  /** Nothing can follow. */
  readonly isComplete: boolean;
  /** A second one that stands at the same place. */
  fork(): GrammarMatcher;
}

export interface TokenGrammar {
  /** A matcher at the beginning of a text. */
  start(): GrammarMatcher;
  /** What is kept for the sake of speed, and how often masks were not. */
  statistics(): { readonly numMasks: number; readonly numWalks: number; readonly numVisitedNodes: number };
}

export interface TokenGrammarOptions {
  readonly grammar: Grammar;
  readonly trie: TokenTrie;
  /** Tokens that end a text. */
  readonly endTokens?: readonly number[];
  /** Most bytes of masks that are kept. Default 16 MiB. */
  readonly maxMaskBytes?: number;
}

const defaultMaskBytes = 16 * 2 ** 20;

/**
 * Masks are made when they are first asked for, by one walk of the tree that leaves out the subtrees of bytes that cannot
 * follow: cost linear in the nodes that it sees. They are kept per state of the grammar, of which a text in quotes has only
 * one, however long it is.
 * @throws {FormatError} for rules that are missing or recurse on the left
 * @throws {CapacityError} for grammars that are too large
 */
export function createTokenGrammar(options: TokenGrammarOptions): TokenGrammar {
  const { trie, endTokens = [] } = options;
  const automaton = createAutomaton(compileNetwork(options.grammar));
  const numWords = Math.ceil(trie.vocabSize / 32);
  const maxMasks = Math.max(1, Math.floor((options.maxMaskBytes ?? defaultMaskBytes) / (numWords * 4)));
  const masks = new Map<number, TokenMask>();
  const ends = new Set(endTokens.filter((id) => id >= 0 && id < trie.vocabSize));
  const trail = new Int32Array(trie.maxDepth + 1);
  let epoch = automaton.epoch;
  let numWalks = 0;
  let numVisitedNodes = 0;

  function maskOf(state: number): TokenMask {
    if (epoch !== automaton.epoch) masks.clear();
    epoch = automaton.epoch;
    const ready = masks.get(state);
    if (ready !== undefined) {
      masks.delete(state); // the one used last comes last
      masks.set(state, ready);
      return ready;
    }
    const bits = new Uint32Array(numWords);
    let numTokens = automaton.isEnd(state) ? 0 : walk(automaton, trie, state, trail, bits);
    if (automaton.isAccepting(state)) {
      for (const id of ends) {
        const [word, bit] = [id >> 5, 1 << (id & 31)];
        if (((bits[word] as number) & bit) === 0) numTokens++;
        bits[word] = (bits[word] as number) | bit;
      }
    }
    if (masks.size >= maxMasks) masks.delete(masks.keys().next().value as number);
    const mask = { bits, numTokens };
    masks.set(state, mask);
    return mask;
  }

  /** One pass over the nodes. @returns how many tokens */
  function walk(run: Automaton, tree: TokenTrie, state: number, states: Int32Array, bits: Uint32Array): number {
    const { numNodes, bytes, depths, ends: subtreeEnds, firstTokens, tokens } = tree;
    const { classOfByte, numClasses } = run;
    let { table } = run;
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
        next = run.step(from, byteClass);
        table = run.table;
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
    numWalks++;
    numVisitedNodes += numVisited;
    return numTokens;
  }

  function createMatcher(initial: Configuration): GrammarMatcher {
    let configuration = initial;
    let state = automaton.stateOf(configuration);
    let stateEpoch = automaton.epoch;

    function current(): number {
      automaton.trim();
      if (stateEpoch !== automaton.epoch) {
        state = automaton.stateOf(configuration);
        configuration = automaton.configuration(state);
        stateEpoch = automaton.epoch;
      }
      return state;
    }

    return {
      mask: () => maskOf(current()),
      accept(tokenId): boolean {
        let next = current();
        if (ends.has(tokenId)) return automaton.isAccepting(next);
        const bytes = trie.bytesOf(tokenId);
        if (bytes === undefined || bytes.length === 0) return false;
        for (const byte of bytes) {
          next = automaton.step(next, automaton.classOfByte[byte] as number);
          if (next === deadState) return false;
        }
        state = next;
        configuration = automaton.configuration(state);
        return true;
      },
      get canEnd(): boolean {
        return automaton.isAccepting(current());
      },
      get isComplete(): boolean {
        return automaton.isEnd(current());
      },
      fork: () => createMatcher(configuration),
    };
  }

  return {
    start: () => createMatcher(automaton.configuration(automaton.startState)),
    statistics: () => ({ numMasks: masks.size, numWalks, numVisitedNodes }),
  };
}
