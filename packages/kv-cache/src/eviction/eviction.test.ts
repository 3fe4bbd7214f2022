import { ArgumentError, CapacityError, createRng } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { createBlockManager, createHeavyHitters, expiredBlocks, expiredSlots, sinkQueryPosition } from '../index.js';

const held = (positions: Int32Array): number[] => [...positions].filter((p) => p >= 0).sort((a, b) => a - b);
const range = (begin: number, end: number): number[] => Array.from({ length: end - begin }, (_, i) => begin + i);

describe('sinks and window as a ring', () => {
  for (const step of [1, 3, 7]) {
    it(`holds exactly the positions that steps of ${step} need, in constant memory`, () => {
      const options = { window: 11, numSinks: 3 };
      const manager = createBlockManager({ numBlocks: 8, blockSize: 4 });
      const { id } = manager.createSequence();
      let mostSlots = 0;
      for (let begin = 0; begin < 600; begin += step) {
        manager.evict(id, expiredSlots(manager.sequence(id), options));
        manager.append(id, range(0, step));
        manager.commit(id);
        manager.checkIntegrity();
        const { positions, numSlots } = manager.sequence(id);
        const firstOfWindow = Math.max(3, begin - 11 + 1);
        expect(held(positions)).toEqual([
          ...range(0, Math.min(3, begin + step)),
          ...range(firstOfWindow, begin + step),
        ]);
        mostSlots = Math.max(mostSlots, numSlots);
      }
      // a block freed in one step may leave up to a block of gaps in others
      expect(mostSlots).toBeLessThanOrEqual(Math.ceil((3 + 11 + step - 1) / 4) * 4 + 4);
      if (step === 1) expect(mostSlots).toBe(14);
    });
  }

  it('rejects invalid windows', () => {
    const view = createBlockManager({ numBlocks: 1, blockSize: 1 }).createSequence();
    expect(() => expiredSlots(view, { window: 0 })).toThrow(ArgumentError);
    expect(() => expiredSlots(view, { window: 1, numSinks: -1 })).toThrow(ArgumentError);
  });
});

describe('sliding window by blocks', () => {
  it('frees blocks that no later query sees, without changing positions', () => {
    const manager = createBlockManager({ numBlocks: 6, blockSize: 4 });
    const { id } = manager.createSequence();
    for (let position = 0; position < 300; position++) {
      manager.evict(id, expiredBlocks(manager.sequence(id), 4, { window: 10 }));
      manager.append(id, [1]);
      manager.commit(id);
      const { positions } = manager.sequence(id);
      // every position that the query sees is kept, and less than a block of others
      const kept = held(positions);
      const firstVisible = Math.max(0, position - 9);
      expect(kept).toEqual(range(kept[0], position + 1));
      expect(kept[0]).toBe(firstVisible - (firstVisible % 4));
      expect([...positions]).toEqual(kept);
    }
  });

  it('keeps the blocks of the sinks', () => {
    const manager = createBlockManager({ numBlocks: 9, blockSize: 4 });
    const { id } = manager.createSequence();
    manager.append(id, range(0, 33));
    manager.commit(id);
    manager.evict(id, expiredBlocks(manager.sequence(id), 4, { window: 6, numSinks: 5 }));
    expect(held(manager.sequence(id).positions)).toEqual([...range(0, 8), ...range(28, 33)]);
  });
});

describe('sinkQueryPosition', () => {
  it('is the true position until the window has moved', () => {
    const options = { window: 10, numSinks: 4 };
    expect([0, 12, 13, 14, 5000].map((p) => sinkQueryPosition(p, options))).toEqual([0, 12, 13, 13, 13]);
  });
});

describe('heavy hitters', () => {
  it('selects the same positions as a full recomputation', () => {
    const rng = createRng(3);
    const manager = createBlockManager({ numBlocks: 8, blockSize: 4 });
    const { id } = manager.createSequence();
    const policy = createHeavyHitters({ budget: 20, recentWindow: 5, isGlobal: (position) => position % 50 === 0 });
    const sums = new Map<number, number>();
    for (let position = 0; position < 400; position++) {
      const view = manager.sequence(id);
      const victims = policy.chooseVictims(view, 1);
      const candidates = held(view.positions).filter((p) => p % 50 !== 0 && p < position - 5);
      const expected = candidates.sort((a, b) => (sums.get(a) ?? 0) - (sums.get(b) ?? 0) || a - b);
      expect(victims.positions).toEqual(expected.slice(0, Math.max(0, held(view.positions).length + 1 - 20)));
      manager.evict(id, victims.slots);
      manager.append(id, [0]);
      manager.commit(id);
      const kept = held(manager.sequence(id).positions);
      expect(kept.length).toBe(Math.min(20, position + 1));
      const masses = kept.map(() => Math.fround(rng.nextFloat()));
      policy.addMass(kept, masses);
      kept.forEach((p, i) => sums.set(p, (sums.get(p) ?? 0) + masses[i]));
    }
    expect(manager.sequence(id).numSlots).toBeLessThanOrEqual(20);
    manager.checkIntegrity();
  });

  it('fails when everything is protected', () => {
    const manager = createBlockManager({ numBlocks: 8, blockSize: 4 });
    const { id } = manager.createSequence();
    manager.append(id, range(0, 8));
    manager.commit(id);
    const policy = createHeavyHitters({ budget: 8, recentWindow: 4, isGlobal: (position) => position < 4 });
    expect(policy.chooseVictims(manager.sequence(id), 0).slots).toEqual([]);
    expect(() => policy.chooseVictims(manager.sequence(id), 1)).toThrow(CapacityError);
    expect(() => policy.chooseVictims(manager.sequence(id), 1)).toThrow(
      'kv cache: heavy hitters: needed 1 unprotected positions, available 0 unprotected positions (the others ' +
        'of 8 cached positions are protected: the last 4 and globals)',
    );
    expect(() => policy.chooseBlocks(manager.sequence(id), 4, 1)).toThrow(CapacityError);
  });

  it('demotes the full block with the smallest sum', () => {
    const manager = createBlockManager({ numBlocks: 8, blockSize: 4 });
    const { id } = manager.createSequence();
    manager.append(id, range(0, 18));
    manager.commit(id);
    const policy = createHeavyHitters({ budget: 100, recentWindow: 3 });
    policy.addMass(
      range(0, 18),
      range(0, 18).map((p) => (p < 4 ? 3 : p < 8 ? 1 : 2)),
    );
    // positions 15 to 17 are recent: block 3 is protected and block 4 not full
    expect(policy.chooseBlocks(manager.sequence(id), 4, 3)).toEqual([1, 2, 0]);
    expect(() => policy.chooseBlocks(manager.sequence(id), 4, 4)).toThrow(CapacityError);
    const copy = policy.fork();
    policy.truncate(6);
    expect([policy.score(5), policy.score(6), copy.score(6)]).toEqual([1, 0, 1]);
  });
});
