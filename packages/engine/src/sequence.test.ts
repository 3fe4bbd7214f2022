import { CapacityError } from '@winnow/tensor';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { createBlockPool } from './block-pool.js';
import { createSequence, sharedPrefix } from './sequence.js';

test('random commands: blocks are never shared, always enough, and all come back', () => {
  const command = fc.record({ sequence: fc.nat(2), action: fc.constantFrom('append', 'truncate'), count: fc.nat(9) });
  fc.assert(
    fc.property(fc.array(command, { maxLength: 60 }), (commands) => {
      const pool = createBlockPool(8, 4);
      const sequences = [createSequence(pool), createSequence(pool), createSequence(pool)];
      for (const { sequence: index, action, count } of commands) {
        const sequence = sequences[index]!;
        const before = sequence.tokens.length;
        if (action === 'truncate') sequence.truncate(count);
        else {
          const numBlocks = sequence.blocks.length;
          try {
            sequence.reserve(before + count);
            sequence.commit(
              Array.from({ length: count }, () => 1),
              0,
              count,
            );
          } catch (error) {
            expect(error).toBeInstanceOf(CapacityError);
            expect(sequence.blocks.length).toBe(numBlocks); // nothing is taken by halves
          }
        }
        const used = sequences.flatMap(({ blocks }) => blocks);
        expect(new Set(used).size).toBe(used.length);
        expect(used.length + pool.numFree).toBe(8);
        for (const { tokens, blocks } of sequences) expect(blocks.length * 4).toBeGreaterThanOrEqual(tokens.length);
      }
      for (const sequence of sequences) sequence.truncate(0);
      expect(pool.numFree).toBe(8);
    }),
  );
});

test('sharedPrefix', () => {
  expect(sharedPrefix([1, 2, 3], [1, 2, 4, 5])).toBe(2);
  expect(sharedPrefix([], [1])).toBe(0);
  expect(sharedPrefix([1, 2], [1, 2])).toBe(2);
});
