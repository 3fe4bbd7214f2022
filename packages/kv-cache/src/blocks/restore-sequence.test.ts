import { ArgumentError, CapacityError, createRng } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { createBlockManager, type BlockManager } from '../index.js';

const range = (begin: number, end: number): number[] => Array.from({ length: end - begin }, (_, i) => begin + i);

const held = (positions: Int32Array): number[] => [...positions].filter((at) => at >= 0).sort((a, b) => a - b);

/** Evicts every seventh position of a longer sequence, then appends a few tokens. */
function step(manager: BlockManager, id: number): void {
  const { positions, numCommitted } = manager.sequence(id);
  const victims = [...positions.keys()].filter((slot) => {
    return positions[slot]! >= 0 && positions[slot]! % 7 === numCommitted % 7;
  });
  if (numCommitted > 12) manager.evict(id, victims);
  manager.append(id, range(0, 1 + (numCommitted % 4)));
  manager.commit(id);
}

describe('restored sequences', () => {
  it('continue like the saved ones, with any gaps and order', () => {
    const rng = createRng(4);
    for (let round = 0; round < 60; round++) {
      const blockSize = 1 + rng.nextInt(5);
      const manager = createBlockManager({ numBlocks: 90, blockSize });
      const { id } = manager.createSequence();
      for (let i = rng.nextInt(15); i > 0; i--) step(manager, id);
      const { tokens, positions } = manager.sequence(id);
      const other = createBlockManager({ numBlocks: 90, blockSize });
      const restored = other.restoreSequence({ tokens, positions });
      expect(restored.blocks).toHaveLength(manager.sequence(id).blocks.length);
      other.commit(restored.id);
      other.checkIntegrity();
      // gaps are filled in slot order, no longer in order of eviction
      for (let i = 0; i < 4; i++) {
        step(manager, id);
        step(other, restored.id);
        other.checkIntegrity();
        expect(held(restored.positions)).toEqual(held(manager.sequence(id).positions));
        expect(restored.numTokens).toBe(manager.sequence(id).numTokens);
      }
    }
  });
});

describe('restoreSequence', () => {
  it('shares whole blocks after commit, not before, and only without gaps', () => {
    const manager = createBlockManager({ numBlocks: 20, blockSize: 4 });
    const { id } = manager.restoreSequence({ tokens: range(0, 10), positions: range(0, 10), salt: 'a' });
    expect(manager.countCached(range(0, 10), 'a')).toBe(0);
    manager.commit(id);
    expect([manager.countCached(range(0, 10), 'a'), manager.countCached(range(0, 10))]).toEqual([8, 0]);
    const gaps = manager.restoreSequence({ tokens: range(20, 30), positions: [0, 1, 2, 3, 8, 9] });
    manager.commit(gaps.id);
    expect([gaps.numEvicted, manager.countCached(range(20, 30))]).toEqual([4, 0]);
    manager.checkIntegrity();
  });

  it('rejects invalid sequences and those that do not fit, without allocating blocks', () => {
    const manager = createBlockManager({ numBlocks: 2, blockSize: 2 });
    const refused = [
      [0, 0],
      [0, 4],
      [0, 1.5],
      [-2, 0],
      [-1, -1],
      [0, 1, -1, -1],
      [0, 1, -1],
    ];
    for (const positions of refused) {
      expect(() => manager.restoreSequence({ tokens: [1, 2, 3, 4], positions })).toThrow(ArgumentError);
    }
    expect(() => manager.restoreSequence({ tokens: range(0, 5), positions: range(0, 5) })).toThrow(CapacityError);
    expect(manager.usage().numUsedBlocks).toBe(0);
    expect(manager.restoreSequence({ tokens: [], positions: [] }).numTokens).toBe(0);
    manager.checkIntegrity();
  });

  it('restores detached pages under ids that are not in use', () => {
    const manager = createBlockManager({ numBlocks: 4, blockSize: 2 });
    const contents = {
      tokens: range(0, 6),
      positions: [0, 1, 4, 5],
      detachedPages: [{ pageId: 9, positions: Int32Array.of(2, 3) }],
    };
    const restored = manager.restoreSequence(contents);
    expect([restored.numEvicted, restored.isShareable]).toEqual([0, false]);
    expect(() => manager.restoreSequence(contents)).toThrow('expected an id not in use, got 9');
    manager.attach(restored.id, 9);
    expect([...restored.positions]).toEqual(range(0, 6));
    const twice = { ...contents, detachedPages: [{ pageId: 7, positions: Int32Array.of(1, -1) }] };
    expect(() => manager.restoreSequence(twice)).toThrow('expected every position once, got 1 twice');
    expect(() => manager.restoreSequence({ tokens: [0.5], positions: [] })).toThrow(ArgumentError);
    manager.checkIntegrity();
  });
});
