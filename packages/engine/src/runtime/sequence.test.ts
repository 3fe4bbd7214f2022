import { createBlockManager } from '@winnow/kv-cache';
import { CapacityError } from '@winnow/tensor';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { KvMemory } from '../memory/kv-memory.js';
import { KvPool } from './kv-pool.js';
import { Sequence, sharedPrefix } from './sequence.js';
import { StateRows } from './state-rows.js';

const blockSize = 4;

function createPool(numBlocks: number, numStates = 0): KvPool {
  const memory = { queue: () => undefined } as unknown as KvMemory;
  const states = numStates === 0 ? undefined : new StateRows(numStates, blockSize);
  const manager = createBlockManager({
    numBlocks,
    blockSize,
    onContentDropped: (contentId) => states?.dropSnapshot(contentId),
  });
  return new KvPool({ manager, memory, states, report: () => undefined });
}

const tokens = (length: number, last = 0): Int32Array => {
  const all = Int32Array.from({ length }, (_, index) => index);
  if (length > 0) all[length - 1] = last;
  return all;
};

test.each([0, 3, 9])(
  'random commands with %i state rows: every sequence keeps its own tokens and states',
  (numStates) => {
    const command = fc.record({
      index: fc.nat(1),
      // two token ids only, so that prefixes are often shared
      wanted: fc.array(fc.nat(1), { minLength: 1, maxLength: 25 }),
      action: fc.constantFrom('step', 'step', 'step', 'fail', 'clear'),
      chunk: fc.integer({ min: 1, max: 9 }),
    });
    fc.assert(
      fc.property(fc.array(command, { maxLength: 40 }), (commands) => {
        const pool = createPool(12, numStates);
        const sequences = [Sequence.create(pool), Sequence.create(pool)];
        /** The tokens that the state in each row was computed from. */
        const seen = new Map<number, string>([[-1, '']]);
        for (const { index, wanted, action, chunk } of commands) {
          const sequence = sequences[index]!;
          if (action === 'clear') sequence.clear();
          const prompt = Int32Array.from(wanted);
          const numCached = sequence.begin(prompt, false);
          expect(numCached).toBeLessThan(prompt.length);
          for (let begin = numCached; begin < prompt.length; begin += chunk) {
            const part = prompt.subarray(begin, begin + chunk);
            try {
              sequence.append(part);
            } catch (error) {
              expect(error).toBeInstanceOf(CapacityError);
              sequence.rollback();
              break;
            }
            const { state } = sequence;
            if (state !== undefined) {
              expect(seen.get(state.from)).toBe(prompt.subarray(0, begin).join());
              expect(state.to).not.toBe(state.from);
              seen.set(state.to, prompt.subarray(0, begin + part.length).join());
            }
            if (action === 'fail') {
              sequence.rollback();
              break;
            }
            sequence.commit(true);
            expect([...sequence.view.tokens]).toEqual([...prompt.subarray(0, begin + part.length)]);
          }
          pool.manager.checkIntegrity();
        }
        for (const sequence of sequences) sequence.free();
        expect(pool.manager.usage().numUsedBlocks).toBe(0);
      }),
      { numRuns: 200, seed: 1 },
    );
  },
);

test('begin reuses whole blocks of other sequences', () => {
  const pool = createPool(8);
  const first = Sequence.create(pool);
  first.append(tokens(11));
  first.commit(true);
  const second = Sequence.create(pool);
  expect(second.begin(tokens(12, 7), false)).toBe(8);
  expect(second.view.blocks).toEqual(first.view.blocks.slice(0, 2));
  // a sequence keeps its own tokens when they match more of the prompt
  expect(first.begin(tokens(11), false)).toBe(10);
});

test('preempted tokens are kept until they are recomputed', () => {
  const pool = createPool(8);
  const sequence = Sequence.create(pool);
  sequence.append(tokens(9));
  sequence.commit(true);
  sequence.preempt();
  expect([sequence.view.numTokens, [...(sequence.preempted ?? [])]]).toEqual([0, [...tokens(9)]]);
  for (const begin of [0, 5]) {
    expect(sequence.preempted).toBeDefined();
    sequence.append(tokens(9).subarray(begin, begin === 0 ? 5 : 9));
    sequence.commit(true);
  }
  expect(sequence.preempted).toBeUndefined();
});

test('a sequence with evicted tokens can only be continued at its end', () => {
  const pool = createPool(8);
  const sequence = Sequence.create(pool);
  sequence.append(tokens(12));
  sequence.commit(true);
  sequence.evict([4, 5, 6, 7]);
  expect(sequence.begin(Int32Array.of(...tokens(12), 3), true)).toBe(12);
  // where gaps are not allowed, or the prompt diverges, it starts over with the prefix that the pool still holds
  const other = sequence.fork();
  pool.manager.dropCached();
  expect(other.begin(Int32Array.of(...tokens(12), 3), false)).toBe(4);
  expect(other.view.numEvicted).toBe(0);
  expect(sequence.begin(tokens(9), true)).toBe(4);
});

test('shared prefixes', () => {
  expect(sharedPrefix([1, 2, 3], [1, 2, 4])).toBe(2);
  expect(sharedPrefix([], [1])).toBe(0);
  expect(sharedPrefix([1, 2], [1, 2])).toBe(2);
});
