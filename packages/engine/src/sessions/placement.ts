/** Sessions with pages in several tiers: saved as if all were in the pool, restored to wherever there is room. */
import type { DetachedPage, SequenceView } from '@winnow/kv-cache';
import type { KvBuffer } from '../memory/kv-memory.js';
import type { KvPool } from '../runtime/kv-pool.js';

/** The location of a saved block's row: a block of the pool, or a page outside it. */
export type RowPlace = number | { readonly pageId: number };

export interface SavedBlocks {
  /** Position of each slot, block after block. */
  readonly positions: Int32Array;
  readonly places: readonly RowPlace[];
}

/**
 * All blocks of a sequence: those outside the pool, oldest first, between the first and the second one of its table.
 */
export function blocksInOrder({ positions, blocks, detachedPages }: SequenceView, blockSize: number): SavedBlocks {
  const pages = detachedPages.map(({ pageId, positions: own }) => ({ place: { pageId } as RowPlace, positions: own }));
  const first = (own: Int32Array): number => own.find((position) => position >= 0) ?? -1;
  pages.sort((a, b) => first(a.positions) - first(b.positions));
  const inPool = blocks.map((block, index) => ({
    place: block as RowPlace,
    positions: positions.subarray(index * blockSize, (index + 1) * blockSize),
  }));
  const ordered = [...inPool.slice(0, 1), ...pages, ...inPool.slice(1)];
  const all = new Int32Array(ordered.reduce((sum, block) => sum + block.positions.length, 0));
  let at = 0;
  for (const block of ordered) {
    all.set(block.positions, at);
    at += block.positions.length;
  }
  return { positions: all, places: ordered.map(({ place }) => place) };
}

export interface Placement {
  /** The first block of the file that goes to the pool after block 0. */
  readonly firstTail: number;
  /** Positions of the slots that go to the pool. */
  readonly positions: Int32Array;
  readonly detachedPages: readonly DetachedPage[];
}

/**
 * Stores the blocks between the first and the newest ones that the pool has no room for, or none. No step may run
 * meanwhile.
 * @param readRow copies a saved block's row of a buffer
 */
export async function placeSaved(
  { manager, tiers }: KvPool,
  positions: Int32Array,
  readRow: (buffer: KvBuffer, index: number, target: Uint8Array) => Promise<void>,
): Promise<Placement> {
  const { blockSize, numBlocks, maxBlocksPerSequence } = manager;
  const numSaved = Math.ceil(positions.length / blockSize);
  const everything: Placement = { firstTail: Math.min(1, numSaved), positions, detachedPages: [] };
  if (tiers === undefined || numSaved < 3) return everything;
  // at most half of the pool, since the next steps need blocks as well
  await tiers.makeBlocks(Math.min(numSaved, Math.max(2, numBlocks >> 1)));
  const { numFreeBlocks, numCachedBlocks } = manager.usage();
  const room = Math.min(numFreeBlocks + numCachedBlocks, maxBlocksPerSequence);
  if (numSaved <= room) return everything;
  const numTail = Math.max(1, Math.min(room, numBlocks >> 1) - 1);
  const firstTail = numSaved - numTail;
  const block = (index: number): Int32Array => positions.subarray(index * blockSize, (index + 1) * blockSize);
  const middle = Array.from({ length: firstTail - 1 }, (_, index) => block(index + 1));
  const pageIds = await tiers.store(middle, (buffer, index, target) => readRow(buffer, index + 1, target));
  const detachedPages = pageIds.map((pageId, index) => ({ pageId, positions: (middle[index] as Int32Array).slice() }));
  const kept = new Int32Array(blockSize + positions.length - firstTail * blockSize);
  kept.set(block(0));
  kept.set(positions.subarray(firstTail * blockSize), blockSize);
  return { firstTail, positions: kept, detachedPages };
}
