/**
 * What happens when the context of a sequence is full: which positions are dropped. Positions keep growing; they are
 * not slots.
 */
import { expiredBlocks, expiredSlots } from '@winnow/kv-cache';
import { ArgumentError } from '@winnow/tensor';
import type { Sequence } from '../runtime/sequence.js';

/** What to do when prompt and answer do not fit into the context. */
export type OverflowPolicy =
  /** Reject prompts that leave no room for a token with a `CapacityError`; end the answer when the context is full. */
  | 'stop'
  /** Fail with a `CapacityError` in both cases. */
  | 'error'
  /** Continue, dropping the oldest block after the first. Positions keep growing. */
  | 'slide'
  /**
   * Continue, dropping one token at a time, so that the cache stays full: the oldest after the first four, or as
   * `kvCache.eviction` says.
   */
  | 'evict'
  /** Drop prompt tokens after the first (BOS) until it fits, then as `stop`. The result reports how many. */
  | 'truncate-start'
  /** Keep the start and the end of the prompt, drop the middle, then as `stop`. The result reports how many. */
  | 'truncate-middle';

/** All policies, including those for prompts only. */
export const overflowPolicies: readonly OverflowPolicy[] = [
  'stop',
  'error',
  'slide',
  'evict',
  'truncate-start',
  'truncate-middle',
];

export function checkOverflow(policy: OverflowPolicy): OverflowPolicy {
  if (overflowPolicies.includes(policy)) return policy;
  throw new ArgumentError({ argument: 'overflow', expected: overflowPolicies.join(' | '), actual: String(policy) });
}

/** Whether generation continues when the context is full. */
export function dropsTokens(policy: OverflowPolicy): boolean {
  return policy === 'slide' || policy === 'evict';
}

/** Number of first positions that are never dropped: attention sinks (arXiv:2309.17453 §3.2). */
const numSinks = 4;

/** Maximum number of tokens per step while the context is full. */
export function chunkLimit(contextSize: number): number {
  return Math.max(1, Math.floor(contextSize / 2));
}

/**
 * Drops positions until `count` more fit. `slide` drops the oldest whole blocks after the first one, or, in contexts of
 * few blocks, a quarter of the context at a time. `evict` drops as few as possible, so that the window stays full: the
 * oldest, or the least attended if attention mass is tracked.
 * @param count at most `chunkLimit`
 * @param minSinks first positions that the attention policy always attends to
 * @returns how many positions were dropped
 * @throws {CapacityError} when too many are protected
 */
export function makeRoom(
  sequence: Sequence,
  count: number,
  contextSize: number,
  blockSize: number,
  policy: OverflowPolicy,
  minSinks: number,
): number {
  const { view } = sequence;
  if (view.numTokens - view.numEvicted + count <= contextSize) return 0;
  if (policy === 'evict' && sequence.heavyHitters !== undefined) {
    const { slots } = sequence.heavyHitters.chooseVictims(view, count);
    sequence.evict(slots);
    return slots.length;
  }
  const numKept = Math.max(minSinks, Math.min(numSinks, contextSize >> 2));
  const numFirst = Math.max(minSinks, blockSize);
  const isByBlocks = policy === 'slide' && contextSize >= 4 * blockSize;
  // windows count the next query: one more than what they leave
  const expiry = isByBlocks
    ? // up to a block less one token more, so that a whole block is out of the window
      { window: contextSize - numFirst - blockSize - count + 2, numSinks: numFirst }
    : {
        window: contextSize - numKept - (policy === 'slide' ? Math.max(count, contextSize >> 2) : count) + 1,
        numSinks: numKept,
      };
  const before = view.numEvicted;
  sequence.evict(isByBlocks ? expiredBlocks(view, blockSize, expiry) : expiredSlots(view, expiry));
  // offloaded positions are dropped in whole pages
  const end = view.numTokens - expiry.window + 1;
  const isExpired = (position: number): boolean => position < 0 || (position >= expiry.numSinks && position < end);
  const pages = view.detachedPages.filter(({ positions }) => positions.every(isExpired));
  if (pages.length > 0) sequence.dropPages(pages.map(({ pageId }) => pageId));
  return view.numEvicted - before;
}
