/** What happens when the context of a sequence is full: which positions go. Positions keep growing; they are not slots. */
import { ArgumentError, CapacityError } from '@winnow/tensor';
import type { Sequence } from './sequence.js';
import type { OverflowPolicy } from './types.js';

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
 * few blocks, a quarter of the context at a time; `evict` drops no more than it must, so that the window stays full.
 * @returns how many positions were dropped
 * @throws {CapacityError} when everything else is protected
 */
export function makeRoom(
  sequence: Sequence,
  count: number,
  contextSize: number,
  blockSize: number,
  policy: OverflowPolicy,
): number {
  const { view } = sequence;
  const numHeld = view.numTokens - view.numEvicted;
  const needed = numHeld + count - contextSize;
  if (needed <= 0) return 0;
  const isWide = contextSize >= 4 * blockSize;
  const slots =
    policy === 'slide' && isWide
      ? oldestBlocks(view.positions, blockSize, needed)
      : oldestSlots(view.positions, policy === 'slide' ? Math.max(needed, contextSize >> 2) : needed, contextSize);
  if (slots.length < needed) {
    throw new CapacityError({
      resource: 'context',
      needed: numHeld + count,
      available: contextSize,
      unit: 'tokens',
      hint: `all but ${slots.length} of the tokens in it are kept for ever`,
    });
  }
  sequence.evict(slots);
  return slots.length;
}

/** Slots of the oldest full blocks, the first one kept, that hold at least `needed` positions. */
function oldestBlocks(positions: Int32Array, blockSize: number, needed: number): number[] {
  const blocks: { readonly begin: number; readonly first: number }[] = [];
  for (let begin = 0; begin + blockSize <= positions.length; begin += blockSize) {
    let first = Infinity;
    for (let slot = begin; slot < begin + blockSize; slot++) {
      const position = positions[slot] as number;
      if (position >= 0 && position < first) first = position;
    }
    blocks.push({ begin, first });
  }
  blocks.sort((a, b) => a.first - b.first);
  const slots: number[] = [];
  for (const { begin } of blocks.slice(1)) {
    if (slots.length >= needed) break;
    for (let slot = begin; slot < begin + blockSize; slot++) if ((positions[slot] as number) >= 0) slots.push(slot);
  }
  return slots;
}

/** Slots of the `count` oldest positions after the sinks. */
function oldestSlots(positions: Int32Array, count: number, contextSize: number): number[] {
  const numKept = Math.min(numSinks, contextSize >> 2);
  const slots: number[] = [];
  for (let slot = 0; slot < positions.length; slot++) if ((positions[slot] as number) >= numKept) slots.push(slot);
  slots.sort((a, b) => (positions[a] as number) - (positions[b] as number));
  return slots.slice(0, count).sort((a, b) => a - b); // holes are filled in this order
}
