/** What happens when sequences need blocks and none is free. */
import type { BlockManager } from '@winnow/kv-cache';
import type { Sequence } from './sequence.js';

/**
 * - `error`: the sequence that needs a block gets a `CapacityError`; the others go on.
 * - `wait`: it waits until others end or give blocks back. When all wait for each other, the youngest gives up its blocks
 *   and is computed again later, with the same tokens.
 */
export type WhenFull = 'wait' | 'error';

export type FullChoice =
  /** Takes its blocks away; it is computed again later. */
  | { readonly kind: 'preempt'; readonly sequence: Sequence }
  /** There will never be room for it. */
  | { readonly kind: 'refuse'; readonly sequence: Sequence };

/**
 * Called when no sequence can run.
 * @param active generations in progress, oldest first; `waiting` those of them that wait for room
 * @param canRecompute whether prompts and generated tokens are computed in the same way
 * @returns `undefined` when there is hope: others may still end, or be disposed
 */
export function choosePreemption(
  manager: BlockManager,
  active: ReadonlySet<Sequence>,
  waiting: ReadonlySet<Sequence>,
  canRecompute: boolean,
): FullChoice | undefined {
  const inOrder = [...active].filter((sequence) => waiting.has(sequence));
  for (const sequence of waiting) if (!active.has(sequence)) inOrder.push(sequence);
  // whoever is not waiting goes on by itself and may end
  if ([...active].some((sequence) => !waiting.has(sequence) && sequence.view.blocks.length > 0)) return undefined;
  const holders = inOrder.filter(({ view }) => view.blocks.length > 0);
  const oldest = inOrder[0] as Sequence;
  // contents with gaps cannot be computed again
  const victim = !canRecompute
    ? undefined
    : holders.findLast((sequence) => sequence !== oldest && sequence.view.numEvicted === 0);
  if (victim !== undefined) return { kind: 'preempt', sequence: victim };
  if (holders.length > 1) return { kind: 'refuse', sequence: holders.at(-1) as Sequence };
  // alone: open sessions that do nothing may be disposed
  const used = manager.usage().numUsedBlocks;
  return used > oldest.view.blocks.length ? undefined : { kind: 'refuse', sequence: oldest };
}
