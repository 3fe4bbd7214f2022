/**
 * Finds and records the contents of full blocks along a sequence. Hashes are chained: each block is identified by its
 * tokens and the content before it.
 */
import { invariant } from '@winnow/tensor';
import type { BlockPool } from './block-pool.js';
import { tableIndexOf, type SequenceState } from './sequence-state.js';

/** Hash of a block's tokens, chained from the hash before; any 32-bit integer. */
export type HashTokens = (previous: number, tokens: Int32Array) => number;

export interface ChainLink {
  readonly contentId: number;
  readonly hash: number;
}

export class PrefixIndex {
  readonly #pool: BlockPool;
  readonly #blockSize: number;
  readonly #hashTokens: HashTokens;

  constructor(pool: BlockPool, blockSize: number, hash: HashTokens = hashTokens) {
    this.#pool = pool;
    this.#blockSize = blockSize;
    this.#hashTokens = hash;
  }

  /** The contents of the longest cached prefix, at most `maxBlocks`. */
  match(tokens: ArrayLike<number>, salt: string, maxBlocks: number): ChainLink[] {
    const blockSize = this.#blockSize;
    const chain: ChainLink[] = [];
    const wanted = new Int32Array(blockSize);
    let hash = this.#hashOfSalt(salt);
    let parent: number | string = salt;
    const numBlocks = Math.min(maxBlocks, Math.floor(tokens.length / blockSize));
    for (let index = 0; index < numBlocks; index++) {
      for (let i = 0; i < blockSize; i++) wanted[i] = tokens[index * blockSize + i];
      hash = this.#hashTokens(hash, wanted) | 0;
      const contentId = this.#pool.find(hash, parent, wanted);
      if (contentId === undefined) break;
      chain.push({ contentId, hash });
      parent = contentId;
    }
    return chain;
  }

  /** Records the newly full blocks of a sequence. */
  register(state: SequenceState): void {
    const blockSize = this.#blockSize;
    const { chain, salt, numCommitted } = state;
    if ((chain.length + 1) * blockSize > numCommitted) return;
    // content that another sequence's equal block provided may be gone: this sequence's blocks replace it
    const firstLost = chain.findIndex(({ contentId }) => !this.#pool.hasContent(contentId));
    if (firstLost >= 0) chain.length = firstLost;
    while ((chain.length + 1) * blockSize <= numCommitted) {
      const begin = chain.length * blockSize;
      const tableIndex = tableIndexOf(state, begin, blockSize);
      if (tableIndex < 0) {
        state.isShareable = false; // detached before it was recorded
        return;
      }
      const lastPosition = state.positions.at(tableIndex * blockSize + blockSize - 1);
      invariant(lastPosition === begin + blockSize - 1, 'block is full');
      const previous = chain.at(-1);
      const tokens = state.tokens.view().subarray(begin, begin + blockSize);
      const hash = this.#hashTokens(previous?.hash ?? this.#hashOfSalt(salt), tokens) | 0;
      const contentId = this.#pool.register(state.blocks[tableIndex], hash, previous?.contentId ?? salt, tokens);
      chain.push({ contentId, hash });
    }
  }

  #hashOfSalt(salt: string): number {
    const codes = Int32Array.from(salt, (character) => character.codePointAt(0) as number);
    return this.#hashTokens(0, codes);
  }
}

/** Mixes tokens into a 32-bit hash, one multiply-rotate-multiply round each (the constants are those of XXH32). */
export function hashTokens(previous: number, tokens: Int32Array): number {
  let hash = previous | 0;
  for (let i = 0; i < tokens.length; i++) {
    hash = (hash + Math.imul(tokens[i], 0xc2b2ae3d)) | 0;
    hash = Math.imul((hash << 17) | (hash >>> 15), 0x27d4eb2f);
  }
  hash ^= hash >>> 15;
  return Math.imul(hash, 0x85ebca77);
}
