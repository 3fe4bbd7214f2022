/** Finds and records the contents of full blocks along a sequence: each is named by its tokens and the content before it. */
import { invariant } from '@winnow/tensor';
import type { BlockLedger, HashTokens } from './ledger.js';
import { tableIndexOf, type SequenceState } from './sequence-state.js';

export interface ChainLink {
  readonly contentId: number;
  readonly hash: number;
}

export interface PrefixIndex {
  /** The contents of the longest cached prefix, at most `maxBlocks`. */
  match(tokens: ArrayLike<number>, salt: string, maxBlocks: number): ChainLink[];
  /** Records the blocks of a sequence that have become full. */
  register(state: SequenceState): void;
}

export function createPrefixIndex(ledger: BlockLedger, blockSize: number, hashTokens: HashTokens): PrefixIndex {
  const hashOfSalt = (salt: string): number =>
    hashTokens(
      0,
      Int32Array.from(salt, (c) => c.codePointAt(0) as number),
    );
  return {
    match(tokens, salt, maxBlocks) {
      const chain: ChainLink[] = [];
      const wanted = new Int32Array(blockSize);
      let hash = hashOfSalt(salt);
      let parent: number | string = salt;
      const numBlocks = Math.min(maxBlocks, Math.floor(tokens.length / blockSize));
      for (let index = 0; index < numBlocks; index++) {
        for (let i = 0; i < blockSize; i++) wanted[i] = tokens[index * blockSize + i];
        hash = hashTokens(hash, wanted) | 0;
        const contentId = ledger.find(hash, parent, wanted);
        if (contentId === undefined) break;
        chain.push({ contentId, hash });
        parent = contentId;
      }
      return chain;
    },
    register(state) {
      const { chain, salt, numCommitted } = state;
      if ((chain.length + 1) * blockSize > numCommitted) return;
      // a content that an equal block of another sequence stood for may be gone: this sequence's blocks take its place
      const firstLost = chain.findIndex(({ contentId }) => !ledger.has(contentId));
      if (firstLost >= 0) chain.length = firstLost;
      while ((chain.length + 1) * blockSize <= numCommitted) {
        const begin = chain.length * blockSize;
        const tableIndex = tableIndexOf(state, begin, blockSize);
        if (tableIndex < 0) {
          state.isShareable = false; // detached before it was recorded
          return;
        }
        invariant(
          state.positions.at(tableIndex * blockSize + blockSize - 1) === begin + blockSize - 1,
          'block is whole',
        );
        const previous = chain.at(-1);
        const tokens = state.tokens.view().subarray(begin, begin + blockSize);
        const hash = hashTokens(previous?.hash ?? hashOfSalt(salt), tokens) | 0;
        const contentId = ledger.register(state.blocks[tableIndex], hash, previous?.contentId ?? salt, tokens);
        chain.push({ contentId, hash });
      }
    },
  };
}
