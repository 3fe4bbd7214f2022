/** The masks of the states of a grammar. */
import { LruMap } from '@winnow/tensor';
import { Automaton, deadState } from '../automaton/automaton.js';
import type { Network } from '../network/network.js';
import { firstToken, otherToken } from '../network/writer.js';
import { openTextOf, openTextSize, uniformTextOf, usualCharacter, usualSuccessor } from './free-text.js';
import type { FreeText, Steps, UniformText } from './free-text.js';
import { exitPathsOf, setBit, textRunOf } from './text-runs.js';
import type { TokenTrie } from './token-trie.js';

/** Tokens that may come next. Shared between matchers: do not modify. */
export interface TokenMask {
  /** Bit `id & 31` of word `id >> 5`. */
  readonly bits: Uint32Array; // [ceil(vocabSize / 32)]
  /** Number of set bits. */
  readonly numTokens: number;
}

/** What masks are made of. */
export interface TokenMasksOptions {
  readonly trie: TokenTrie;
  readonly endTokens?: readonly number[];
  readonly maxMaskBytes?: number;
}

const defaultMaskBytes = 16 * 2 ** 20;

/** The masks of one grammar; the least recently used ones go first. */
export class TokenMasks {
  readonly automaton: Automaton;
  readonly trie: TokenTrie;
  readonly ends: ReadonlySet<number>;
  /** Symbols of the tokens that the grammar names, by their ids. */
  readonly #symbols: ReadonlyMap<number, number>;
  readonly #numWords: number;
  readonly #maxMasks: number;
  readonly #masks = new LruMap<number, TokenMask>();
  /** States of a walk by depth. */
  readonly #trail: Int32Array; // [maxDepth + 1]
  /** States of its reference by depth. */
  readonly #referenceTrail: Int32Array; // [maxDepth + 1]
  readonly #steps: Steps;
  #epoch: number;
  #numWalks = 0;
  #numVisitedNodes = 0;

  constructor(network: Network, { trie, endTokens = [], maxMaskBytes = defaultMaskBytes }: TokenMasksOptions) {
    const automaton = new Automaton(network);
    this.automaton = automaton;
    this.#steps = {
      step: (from, byte) => automaton.step(from, automaton.classOfSymbol[byte]!),
      numSteps: () => automaton.numSteps,
    };
    this.trie = trie;
    this.#symbols = new Map(network.tokenIds.map((id, index) => [id, firstToken + index]));
    this.ends = new Set(endTokens.filter((id) => id >= 0 && id < trie.vocabSize));
    this.#numWords = Math.ceil(trie.vocabSize / 32);
    this.#maxMasks = Math.max(1, Math.floor(maxMaskBytes / (this.#numWords * 4)));
    this.#trail = new Int32Array(trie.maxDepth + 1);
    this.#referenceTrail = new Int32Array(trie.maxDepth + 1);
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

  /**
   * Tokens by their bytes. Where most characters lead to free text, its tokens are those of this state, too, except for
   * texts after which the two states differ, such as the beginning of a declared name among all other names.
   */
  #addTexts(state: number, bits: Uint32Array): void {
    const { trie } = this;
    this.#numWalks++;
    const steps = this.#steps;
    const text = uniformTextOf(state, steps);
    const successor = usualSuccessor(state, steps);
    const isRepeated = successor !== state && steps.step(successor, usualCharacter) === successor;
    const following = isRepeated ? uniformTextOf(successor, steps) : undefined;
    const size = text?.size ?? 0;
    if (following !== undefined && following.size > size) {
      this.#addUniformText(following, bits);
      this.#walk(state, successor, 0, trie.numNodes, bits);
      return;
    }
    const open = size < openTextSize ? openTextOf(state, steps) : undefined;
    if (open !== undefined && open.size > size) this.#addOpenText(state, open, bits);
    else if (text !== undefined) this.#addUniformText(text, bits);
    else this.#walk(state, deadState, 0, trie.numNodes, bits);
  }

  /** Only tokens with other characters need a walk. */
  #addUniformText(text: UniformText, bits: Uint32Array): void {
    const { automaton, trie } = this;
    const { bits: known, exits, numBefore } = textRunOf(trie, text);
    bits.set(known);
    for (let i = 0; i < exits.length; i++) {
      const [before, node] = [text.states[numBefore[i]!]!, exits[i]!];
      const first = automaton.step(before, automaton.classOfSymbol[trie.bytes[node]!]!);
      if (first !== deadState) this.#walk(before, deadState, node, trie.ends[node]!, bits);
    }
  }

  /** The same where the text leads to several states. */
  #addOpenText(state: number, text: FreeText, bits: Uint32Array): void {
    const { automaton, trie } = this;
    const { bytes, depths, ends } = trie;
    const run = textRunOf(trie, text);
    bits.set(run.bits);
    const states = this.#trail;
    states[0] = state;
    const paths = exitPathsOf(trie, run);
    this.#numVisitedNodes += paths.length;
    for (const entry of paths) {
      const node = entry < 0 ? ~entry : entry;
      const depth = depths[node]!;
      const next = automaton.step(states[depth]!, automaton.classOfSymbol[bytes[node]!]!);
      if (entry >= 0) states[depth + 1] = next;
      else if (next !== deadState) this.#walk(states[depth]!, deadState, node, ends[node]!, bits);
    }
  }

  /**
   * One pass over nodes that the same text precedes. Subtrees in which both states lead to the same one are skipped.
   * @param state after this text
   * @param reference another state after it, whose tokens `bits` contains
   */
  #walk(state: number, reference: number, begin: number, end: number, bits: Uint32Array): void {
    const { bytes, depths, ends, firstTokens, tokens } = this.trie;
    const automaton = this.automaton;
    const [states, references] = [this.#trail, this.#referenceTrail];
    const { classOfSymbol, numClasses } = automaton;
    if (begin === end) return;
    states[depths[begin]!] = state;
    references[depths[begin]!] = reference;
    let { table } = automaton;
    let numVisited = 0;
    for (let node = begin; node < end;) {
      numVisited++;
      const depth = depths[node]!;
      const byteClass = classOfSymbol[bytes[node]!]!;
      const [from, fromReference] = [states[depth]!, references[depth]!];
      let next = table[from * numClasses + byteClass]!;
      if (next < deadState) {
        next = automaton.step(from, byteClass);
        table = automaton.table;
      }
      let expected = deadState;
      if (fromReference !== deadState) {
        expected = automaton.step(fromReference, byteClass);
        table = automaton.table;
      }
      if (next === expected || next === deadState) {
        const after = ends[node]!;
        if (next !== expected) removeTokens(tokens, firstTokens[node]!, firstTokens[after]!, bits);
        node = after;
        continue;
      }
      states[depth + 1] = next;
      references[depth + 1] = expected;
      const last = firstTokens[node + 1]!;
      for (let i = firstTokens[node]!; i < last; i++) setBit(bits, tokens[i]!);
      node++;
    }
    this.#numVisitedNodes += numVisited;
  }
}

function removeTokens(tokens: Int32Array, begin: number, end: number, bits: Uint32Array): void {
  for (let i = begin; i < end; i++) bits[tokens[i]! >> 5]! &= ~(1 << (tokens[i]! & 31));
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
