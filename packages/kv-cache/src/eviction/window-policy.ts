/**
 * Slots that a sliding window no longer needs, with or without attention sinks: the first tokens, which models attend
 * to regardless of content (arXiv:2309.17453 §3.2). Victims are logical slots for `BlockManager.evict`.
 *
 * A query at position `p` sees the sinks `[0, numSinks)` and the window `(p - window, p]`. Before a step whose first
 * query is at `numTokens`, everything between the sinks and `numTokens - window + 1` can be evicted.
 */
import { ArgumentError } from '@winnow/tensor';
import type { SequenceView } from '../blocks/sequence-state.js';

export interface WindowOptions {
  /** Number of positions that a query attends to, including its own. */
  readonly window: number;
  /** Number of first positions that are always kept. Default 0. */
  readonly numSinks?: number;
}

/**
 * Logical slots of single positions that the next query does not attend to. The next tokens fill these holes, so the
 * cache is a ring buffer: `numSinks + window` slots for one token at a time, `numSinks + window + n - 1` for steps of
 * `n`.
 */
export function expiredSlots(sequence: SequenceView, options: WindowOptions): number[] {
  const [begin, end] = expiredRange(sequence, options);
  const { positions } = sequence;
  const slots: number[] = [];
  for (let slot = 0; slot < positions.length; slot++) {
    if (positions[slot] >= begin && positions[slot] < end) slots.push(slot);
  }
  return slots;
}

/**
 * Logical slots of whole blocks without a sink or a position that the next query attends to. Needs up to one block more
 * memory than `expiredSlots`, but keeps slots in position order.
 */
export function expiredBlocks(sequence: SequenceView, blockSize: number, options: WindowOptions): number[] {
  const [begin, end] = expiredRange(sequence, options);
  const { positions } = sequence;
  const slots: number[] = [];
  for (let first = 0; first < positions.length; first += blockSize) {
    const last = Math.min(first + blockSize, positions.length);
    const filled: number[] = [];
    let isExpired = true;
    for (let slot = first; slot < last; slot++) {
      if (positions[slot] < 0) continue;
      if (positions[slot] < begin || positions[slot] >= end) isExpired = false;
      filled.push(slot);
    }
    if (isExpired) slots.push(...filled);
  }
  return slots;
}

/**
 * Position at which the query is rotated for the sinks. Keys keep the rotation of their absolute positions; a query of
 * the window is rotated at its true position, and once more at this one for the sinks, as if they were right before the
 * window.
 */
export function sinkQueryPosition(position: number, { window, numSinks = 0 }: WindowOptions): number {
  return Math.min(position, numSinks + window - 1);
}

function expiredRange(
  { numTokens, numCommitted }: SequenceView,
  { window, numSinks = 0 }: WindowOptions,
): [number, number] {
  for (const [argument, value, least] of [
    ['window', window, 1],
    ['numSinks', numSinks, 0],
  ] as const) {
    if (!Number.isSafeInteger(value) || value < least) {
      throw new ArgumentError({ argument, expected: `an integer from ${least}`, actual: String(value) });
    }
  }
  return [numSinks, Math.min(numTokens - window + 1, numCommitted)];
}
