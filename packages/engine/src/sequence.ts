/** The cached tokens of one session and the blocks that hold them. */
import type { BlockPool } from './block-pool.js';
import type { SequenceCache } from './step-runner.js';

export interface Sequence extends SequenceCache {
  /** Tokens whose keys and values are in the cache. */
  readonly tokens: readonly number[];
  /** Takes blocks for `numTokens` tokens in all. @throws {CapacityError} when the pool is empty; takes none then */
  reserve(numTokens: number): void;
  /** Adds tokens that a step has just stored. */
  commit(tokens: ArrayLike<number>, begin: number, count: number): void;
  /** Forgets everything after the first `numTokens` tokens and gives back the blocks beyond them. */
  truncate(numTokens: number): void;
}

export function createSequence(pool: BlockPool): Sequence {
  const tokens: number[] = [];
  const blocks: number[] = [];
  const releaseBeyond = (numBlocks: number): void => {
    while (blocks.length > numBlocks) pool.free(blocks.pop() as number);
  };
  return {
    tokens,
    blocks,
    reserve(numTokens): void {
      const numBefore = blocks.length;
      try {
        while (blocks.length * pool.blockSize < numTokens) blocks.push(pool.allocate());
      } catch (error) {
        releaseBeyond(numBefore);
        throw error;
      }
    },
    commit(added, begin, count): void {
      for (let i = begin; i < begin + count; i++) tokens.push(added[i] as number);
    },
    truncate(numTokens): void {
      tokens.length = Math.min(tokens.length, numTokens);
      releaseBeyond(Math.ceil(tokens.length / pool.blockSize));
    },
  };
}

/** How many leading tokens of `tokens` are cached already. */
export function sharedPrefix(cached: readonly number[], tokens: ArrayLike<number>): number {
  const length = Math.min(cached.length, tokens.length);
  for (let i = 0; i < length; i++) if (cached[i] !== tokens[i]) return i;
  return length;
}
