/** What a caller should know of weights that are not all in memory. */
import type { MemoryPlan } from './memory-plan.js';

const megabytes = (bytes: number): string => `${(bytes / 1e6).toFixed(bytes < 1e8 ? 1 : 0)} MB`;

export function tierNotices({ weightTiers, totalBytes }: MemoryPlan): string[] {
  if (weightTiers === undefined) return [];
  const { kind, numItems, numSlots, slotBytes, coldBytes, copyBytes } = weightTiers;
  const inSlots = `${numSlots} of ${numItems} ${kind}s have a place in memory (${megabytes(slotBytes)})`;
  const others = copyBytes > 0 ? 'are kept in 4 bits' : 'are read when they are needed';
  return [`${inSlots}; ${megabytes(coldBytes)} ${others}: ${megabytes(totalBytes)} in all`];
}
