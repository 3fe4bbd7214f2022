import { CapacityError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { StateRows } from './state-rows.js';

test('a row is free when its last user releases it', () => {
  const rows = new StateRows(1, 4);
  const slot = rows.createSlot();
  slot.prepare();
  slot.commit(4, 7); // one for the slot, one for its snapshot
  const fork = slot.fork();
  slot.free();
  rows.dropSnapshot(7);
  expect(() => rows.allocate()).toThrow(CapacityError);
  fork.free();
  expect(rows.allocate()).toBe(0);
});

test('the oldest snapshot is evicted, but not while a sequence uses it', () => {
  const rows = new StateRows(2, 4);
  const slot = rows.createSlot();
  for (const [numTokens, contentId] of [
    [4, 1],
    [8, 2],
  ] as const) {
    slot.prepare();
    slot.commit(numTokens, contentId);
  }
  expect(rows.numSnapshots).toBe(2);
  slot.prepare();
  expect([rows.hasSnapshot(1), rows.hasSnapshot(2)]).toEqual([false, true]);
  expect(() => rows.createSlot().prepare()).toThrow(CapacityError);
});
