import type { KernelCase } from '../kernel-case.js';
import { integersOf, ints } from '../values.js';

/** Exact: the named slots change, all others stay. */
export const positionAppendCases: readonly KernelCase[] = [0, 1, 3, 7, 16, 33].flatMap((numTokens): KernelCase[] =>
  [1, 5, 16].map((blockSize) => ({
    op: 'position-append',
    name: `${numTokens} tokens, blocks of ${blockSize}`,
    dtypes: {},
    attributes: {},
    create(rng) {
      const numBlocks = Math.ceil((numTokens + 4) / blockSize) + 1;
      const slots = shuffledSlots(rng, numTokens, numBlocks * blockSize);
      const positions = Array.from({ length: numTokens }, () => rng.nextInt(1_000_000));
      const slotPositions = ints([numBlocks, blockSize], new Array(numBlocks * blockSize).fill(-1));
      const after = integersOf(slotPositions);
      for (const [t, slot] of slots.entries()) if (slot >= 0) after[slot] = positions[t];
      return {
        inputs: { slots: ints([numTokens], slots, 0), positions: ints([numTokens], positions, 0) },
        updated: { slotPositions },
        expected: { slotPositions: { kind: 'bytes', bytes: new Uint8Array(after.buffer) } },
      };
    },
  })),
);

/** Different slots in random order, every fourth token without one (negative). */
export function shuffledSlots(rng: { nextInt(bound: number): number }, numTokens: number, numSlots: number): number[] {
  const free = Array.from({ length: numSlots }, (_, slot) => slot);
  return Array.from({ length: numTokens }, (_, t) =>
    t % 4 === 3 ? -1 - rng.nextInt(5) : free.splice(rng.nextInt(free.length), 1)[0],
  );
}
