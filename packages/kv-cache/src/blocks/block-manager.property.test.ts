/** 12,000 random commands against a naive model; integrity and contents are checked after each. */
import { createRng } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { BlockModel } from '../../test/block-model.js';
import { hashTokens } from './prefix-index.js';

describe('random commands', () => {
  const cases = [
    { name: 'small pool', numBlocks: 9, blockSize: 4, numRuns: 20 },
    { name: 'roomy pool', numBlocks: 60, blockSize: 3, numRuns: 10 },
    { name: 'blocks of one slot', numBlocks: 12, blockSize: 1, numRuns: 8 },
    { name: 'short block tables', numBlocks: 20, blockSize: 4, maxBlocksPerSequence: 4, numRuns: 8 },
    { name: 'every hash collides', numBlocks: 24, blockSize: 2, numRuns: 8, hash: () => 7 },
    { name: 'no sharing', numBlocks: 16, blockSize: 4, prefixSharing: false, numRuns: 6 },
  ];
  for (const { name, numRuns, ...options } of cases) {
    it(`${name}: contents match the model after every command`, () => {
      let numRefused = 0;
      let numShared = 0;
      let numCopies = 0;
      const numByKind = new Map<string, number>();
      for (let seed = 0; seed < numRuns; seed++) {
        const model = new BlockModel(options, createRng(seed));
        for (let i = 0; i < 200; i++) model.runCommand();
        for (const [kind, count] of model.kinds) numByKind.set(kind, (numByKind.get(kind) ?? 0) + count);
        numRefused += model.numRefused;
        numShared += model.manager.statistics().numSharedTokens;
        numCopies += model.manager.statistics().numCopies;
        for (const id of model.manager.sequenceIds) model.manager.free(id);
        expect(model.manager.usage().numUsedBlocks).toBe(0);
      }
      expect(numByKind.size).toBe(13); // every command ran
      // the rare cases occurred
      expect(numRefused > 0 || options.numBlocks > 20).toBe(true);
      expect(numShared > 0).toBe(options.prefixSharing !== false);
      expect(numCopies > 0).toBe(options.blockSize > 1);
    });
  }
});

describe('hashTokens', () => {
  it('depends on the order, the values and the previous hash', () => {
    const hashes = [
      hashTokens(0, Int32Array.of(1, 2)),
      hashTokens(0, Int32Array.of(2, 1)),
      hashTokens(1, Int32Array.of(1, 2)),
      hashTokens(0, Int32Array.of(1, 2, 0)),
    ];
    expect(new Set(hashes).size).toBe(4);
  });
});
