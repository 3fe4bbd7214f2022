import { ArgumentError, CapacityError } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { createBlockManager, type BlockManager } from '../index.js';

const range = (begin: number, end: number): number[] => Array.from({ length: end - begin }, (_, i) => begin + i);

function start(manager: BlockManager, tokens: number[]): number {
  const { id, numTokens } = manager.createSequence({ prefix: tokens });
  manager.append(id, tokens.slice(numTokens));
  manager.commit(id);
  return id;
}

describe('append', () => {
  it('allocates slots in block order and returns their positions', () => {
    const manager = createBlockManager({ numBlocks: 4, blockSize: 4 });
    const { id } = manager.createSequence();
    const { slots, positions, newBlocks } = manager.append(id, [5, 6, 7, 8, 9, 10]);
    const { blocks } = manager.sequence(id);
    expect(newBlocks).toEqual(blocks);
    expect([...slots]).toEqual(range(0, 6).map((j) => blocks[Math.floor(j / 4)] * 4 + (j % 4)));
    expect([...positions]).toEqual(range(0, 6));
  });

  it('reports how many blocks are missing and changes nothing', () => {
    const manager = createBlockManager({ numBlocks: 3, blockSize: 4 });
    const id = start(manager, range(0, 9));
    expect(manager.canAppend(id, 4)).toBe(false);
    expect(manager.countNewBlocks(id, 4)).toBe(1);
    expect(() => manager.append(id, [1, 2, 3, 4])).toThrow(
      new CapacityError({
        resource: 'kv cache: block table',
        needed: 4,
        available: 3,
        unit: 'blocks',
        hint: 'one sequence holds at most 12 tokens',
      }),
    );
    const other = manager.createSequence().id;
    expect(() => manager.append(other, [1])).toThrow(
      'kv cache: needed 1 blocks, available 0 blocks (3 of 3 blocks of 4 tokens are in use)',
    );
    expect(manager.sequence(other).numTokens).toBe(0);
    manager.free(id);
    manager.append(other, [1]);
    manager.checkIntegrity();
  });

  it('rejects invalid tokens', () => {
    const manager = createBlockManager({ numBlocks: 3, blockSize: 4 });
    const { id } = manager.createSequence();
    expect(() => manager.append(id, [1, 2.5])).toThrow(ArgumentError);
    expect(() => manager.append(id, [1, undefined as never])).toThrow('expected 32-bit integers, got undefined at 1');
    expect(manager.sequence(id).numTokens).toBe(0);
  });
});

describe('prefix sharing', () => {
  it('finds full blocks of equal tokens in open and freed sequences', () => {
    const manager = createBlockManager({ numBlocks: 8, blockSize: 4 });
    const first = start(manager, range(0, 10));
    const blocks = [...manager.sequence(first).blocks];
    const second = start(manager, [...range(0, 8), 77]);
    expect(manager.sequence(second).blocks.slice(0, 2)).toEqual(blocks.slice(0, 2));
    expect(manager.refCount(blocks[0])).toBe(2);
    manager.free(first);
    manager.free(second);
    expect(manager.usage()).toEqual({ numFreeBlocks: 6, numCachedBlocks: 2, numUsedBlocks: 0 });
    expect(manager.countCached(range(0, 12))).toBe(8);
    const third = manager.createSequence({ prefix: range(0, 12) });
    expect([...third.tokens]).toEqual(range(0, 8));
    expect(third.blocks).toEqual(blocks.slice(0, 2));
  });

  it('does not find uncommitted blocks, another salt, or a changed prefix', () => {
    const manager = createBlockManager({ numBlocks: 8, blockSize: 4 });
    const { id } = manager.createSequence();
    manager.append(id, range(0, 4));
    expect(manager.countCached(range(0, 4))).toBe(0);
    manager.commit(id);
    expect(manager.countCached(range(0, 4))).toBe(4);
    expect(manager.countCached(range(0, 4), 'sliding')).toBe(0);
    manager.append(id, range(4, 8));
    manager.commit(id);
    expect(manager.countCached([9, ...range(1, 8)])).toBe(0);
  });

  it('reclaims the oldest cached block first, and blocks before those that they depend on', () => {
    const dropped: number[] = [];
    const manager = createBlockManager({ numBlocks: 4, blockSize: 2, onContentDropped: (id) => dropped.push(id) });
    const first = start(manager, [1, 2, 3, 4]);
    const ids = [manager.contentId(first, 2), manager.contentId(first, 4)];
    manager.free(first);
    start(manager, [9, 9, 9, 9, 9, 9]);
    expect(dropped).toEqual([ids[1]]);
    expect(manager.countCached([1, 2, 3, 4])).toBe(2);
  });

  it('does not share blocks computed after an eviction', () => {
    const manager = createBlockManager({ numBlocks: 8, blockSize: 2 });
    const id = start(manager, [1, 2, 3, 4]);
    manager.evict(id, [0]);
    manager.append(id, [5, 6, 7]);
    manager.commit(id);
    expect(manager.sequence(id).isShareable).toBe(false);
    expect(manager.countCached([1, 2, 3, 4, 5, 6, 7])).toBe(0);
  });
});

describe('copy on write', () => {
  it('copies a shared tail block once, for the first writer', () => {
    const manager = createBlockManager({ numBlocks: 8, blockSize: 4 });
    const first = start(manager, range(0, 6));
    const tail = manager.sequence(first).blocks[1];
    const second = manager.fork(first).id;
    const { copies, slots } = manager.append(second, [50]);
    const copy = manager.sequence(second).blocks[1];
    expect(copies).toEqual([{ from: tail, to: copy, numSlots: 2 }]);
    expect([...slots]).toEqual([copy * 4 + 2]);
    expect(manager.append(first, [60]).copies).toEqual([]);
  });
});

describe('evict', () => {
  it('leaves gaps that the next tokens fill, and frees empty blocks', () => {
    const manager = createBlockManager({ numBlocks: 4, blockSize: 4 });
    const id = start(manager, range(0, 10));
    const [block] = manager.sequence(id).blocks;
    expect(manager.evict(id, [1, 4, 5, 6, 7]).clearedSlots).toEqual([block * 4 + 1]);
    expect([...manager.sequence(id).positions]).toEqual([0, -1, 2, 3, 8, 9]);
    expect(manager.sequence(id).numEvicted).toBe(5);
    const { slots } = manager.append(id, [100, 101]);
    expect(slots[0]).toBe(block * 4 + 1);
    expect([...manager.sequence(id).positions]).toEqual([0, 10, 2, 3, 8, 9, 11]);
  });

  it('rejects empty, unknown and uncommitted slots', () => {
    const manager = createBlockManager({ numBlocks: 4, blockSize: 4 });
    const id = start(manager, range(0, 4));
    manager.append(id, [9]);
    manager.evict(id, [2]);
    for (const slot of [2, 4, 5, -1, 0.5]) expect(() => manager.evict(id, [slot])).toThrow(ArgumentError);
  });

  it('truncates after an eviction and reports what is missing', () => {
    const manager = createBlockManager({ numBlocks: 4, blockSize: 4 });
    const id = start(manager, range(0, 8));
    manager.evict(id, [1]);
    manager.append(id, [8]);
    manager.commit(id);
    manager.truncate(id, 5);
    expect([...manager.sequence(id).positions].filter((position) => position >= 0)).toEqual([0, 2, 3, 4]);
    expect(manager.sequence(id).numEvicted).toBe(1);
  });
});

describe('detached pages', () => {
  it('leave the block table, stay part of the sequence and are restored in place', () => {
    const manager = createBlockManager({ numBlocks: 3, blockSize: 2, prefixSharing: false });
    const id = start(manager, range(0, 6));
    manager.detach(id, [{ tableIndex: 1, pageId: 70 }]);
    expect([...manager.sequence(id).positions]).toEqual([0, 1, 4, 5]);
    expect(manager.sequence(id).numEvicted).toBe(0);
    expect(manager.usage().numFreeBlocks).toBe(1);
    const { tableIndex, block, positions, droppedPages } = manager.attach(id, 70);
    expect({ tableIndex, positions: [...positions], droppedPages }).toEqual({
      tableIndex: 1,
      positions: [2, 3],
      droppedPages: [70],
    });
    expect(manager.sequence(id).blocks[1]).toBe(block);
    expect([...manager.sequence(id).positions]).toEqual(range(0, 6));
  });

  it('are dropped with the last sequence that refers to them', () => {
    const manager = createBlockManager({ numBlocks: 3, blockSize: 2 });
    const id = start(manager, range(0, 3));
    manager.detach(id, [{ tableIndex: 0, pageId: 5 }]);
    expect(() => manager.detach(id, [{ tableIndex: 0, pageId: 6 }])).toThrow('a full block of committed tokens');
    const copy = manager.fork(id).id;
    const other = manager.fork(id).id;
    expect(() => manager.dropPages(other, [6])).toThrow('detached pages of the sequence');
    expect(manager.dropPages(other, [5]).droppedPages).toEqual([]);
    expect(manager.sequence(other)).toMatchObject({ numEvicted: 2, isShareable: false, detachedPages: [] });
    manager.free(other);
    expect(manager.free(id).droppedPages).toEqual([]);
    expect(manager.truncate(copy, 0).droppedPages).toEqual([5]);
  });
});
