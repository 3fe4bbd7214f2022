/** What happens when the context of a sequence is full: which positions go. Positions keep growing; they are not slots. */
import { expiredBlocks, expiredSlots } from '@winnow/kv-cache';
import { ArgumentError } from '@winnow/tensor';
import type { Sequence } from '../runtime/sequence.js';

/** What to do when prompt and answer do not fit into the context. */
export type OverflowPolicy =
  /** Refuse prompts that leave no room for a token with a `CapacityError`; end the answer when the context is full. */
  | 'stop'
  /** Refuse both with a `CapacityError`. */
  | 'error'
  /** Go on without the oldest tokens after the first ones, dropped a block at a time. Positions keep growing. */
  | 'slide'
  /**
   * Go on without the oldest tokens after the first ones, or without those that `kvCache.eviction` names, dropped one at a time: the
   * cache stays full.
   */
  | 'evict'
  /** Drop tokens of the prompt after the first (BOS) one until it fits, then as `stop`. The result says how many. */
  | 'truncate-start'
  /** Keep the first and the last part of the prompt, drop the middle, then as `stop`. The result says how many. */
  | 'truncate-middle';

/** Every policy, with the ones for prompts only. */
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

/** Whether generation goes on when the context is full. */
export function dropsTokens(policy: OverflowPolicy): boolean {
  return policy === 'slide' || policy === 'evict';
}

/** First positions that are kept for ever: models look at them whatever they say (arXiv:2309.17453 §3.2). */
const numSinks = 4;

/** Most tokens of a step while the context is full. */
export function chunkLimit(contextSize: number): number {
  return Math.max(1, Math.floor(contextSize / 2));
}

/**
 * Drops positions until `count` more fit. `slide` drops the oldest whole blocks after the first one, or, in contexts of
 * few blocks, a quarter of the context at a time; `evict` drops no more than it must, so that the window stays full: the
 * oldest, or those that were looked at least where that is measured.
 * @param count at most `chunkLimit`
 * @param minSinks first positions that the attention policy always looks at
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
    ? // with a block less one to spare, so that a whole block is out of sight
      { window: contextSize - numFirst - blockSize - count + 2, numSinks: numFirst }
    : {
        window: contextSize - numKept - (policy === 'slide' ? Math.max(count, contextSize >> 2) : count) + 1,
        numSinks: numKept,
      };
  const before = view.numEvicted;
  sequence.evict(isByBlocks ? expiredBlocks(view, blockSize, expiry) : expiredSlots(view, expiry));
  // what is outside the pool goes by whole pages
  const end = view.numTokens - expiry.window + 1;
  const isExpired = (position: number): boolean => position < 0 || (position >= expiry.numSinks && position < end);
  const pages = view.detachedPages.filter(({ positions }) => positions.every(isExpired));
  if (pages.length > 0) sequence.dropPages(pages.map(({ pageId }) => pageId));
  return view.numEvicted - before;
}
