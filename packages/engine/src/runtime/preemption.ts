/** What happens when sequences need blocks and none is free. */
import type { BlockManager } from '@winnow/kv-cache';
import type { Sequence } from './sequence.js';

export interface FullPoolAction {
  /**
   * `preempt` takes the blocks of the sequence; `reject` rejects its request, because there will never be room for it.
   */
  readonly kind: 'preempt' | 'reject';
  readonly sequence: Sequence;
}

/**
 * Called when no sequence can run.
 * @param running generations in progress, oldest first; `waiting` those of them that wait for room
 * @param canRecompute whether prefill and decode compute the same
 * @returns `undefined` when others may still end or be disposed of
 */
export function resolveFullPool(
  manager: BlockManager,
  running: ReadonlySet<Sequence>,
  waiting: ReadonlySet<Sequence>,
  canRecompute: boolean,
): FullPoolAction | undefined {
  const inOrder = [...running].filter((sequence) => waiting.has(sequence));
  for (const sequence of waiting) if (!running.has(sequence)) inOrder.push(sequence);
  // a sequence that is not waiting makes progress and may end
  if ([...running].some((sequence) => !waiting.has(sequence) && sequence.view.blocks.length > 0)) return undefined;
  const holders = inOrder.filter(({ view }) => view.blocks.length > 0);
  const oldest = inOrder[0] as Sequence;
  // a sequence with evicted positions must recompute all tokens that it ever had
  const victim = canRecompute
    ? holders.findLast((sequence) => sequence !== oldest && sequence.view.numEvicted === 0)
    : undefined;
  if (victim !== undefined) return { kind: 'preempt', sequence: victim };
  if (holders.length > 1) return { kind: 'reject', sequence: holders.at(-1) as Sequence };
  // the only generation: idle sessions that hold blocks may be disposed of
  const used = manager.usage().numUsedBlocks;
  return used > oldest.view.blocks.length ? undefined : { kind: 'reject', sequence: oldest };
}
