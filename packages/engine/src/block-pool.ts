/** The blocks of the KV cache as plain data: a free list. Sessions take blocks as they grow and give all back at once. */
import { CapacityError, invariant } from '@winnow/tensor';

export interface BlockPool {
  readonly blockSize: number;
  readonly numFree: number;
  /** @throws {CapacityError} when no block is free */
  allocate(): number;
  free(block: number): void;
}

export function createBlockPool(numBlocks: number, blockSize: number): BlockPool {
  const freeBlocks = Array.from({ length: numBlocks }, (_, index) => numBlocks - 1 - index);
  const isFree = new Array<boolean>(numBlocks).fill(true);
  return {
    blockSize,
    get numFree(): number {
      return freeBlocks.length;
    },
    allocate(): number {
      const block = freeBlocks.pop();
      if (block === undefined) {
        throw new CapacityError({
          resource: 'kv cache',
          needed: 1,
          available: 0,
          unit: 'blocks',
          hint: `all ${numBlocks} blocks of ${blockSize} tokens are in use by open sessions`,
        });
      }
      isFree[block] = false;
      return block;
    },
    free(block): void {
      invariant(isFree[block] === false, `block ${block} is in use`);
      isFree[block] = true;
      freeBlocks.push(block);
    },
  };
}
