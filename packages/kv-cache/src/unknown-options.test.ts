/** Unknown options are errors that name the nearest known one. */
import { memorySource } from '@winnow/bytes';
import { UnknownOptionError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import {
  createBlockManager,
  createContiguousCache,
  createHeavyHitters,
  createPageStore,
  KvPool,
  KvStorage,
  memoryPageFile,
  openPageFrames,
  openSession,
  Rotation,
  StreamedAttention,
} from './index.js';
import { openPageFile } from './index.node.js';

/** A misspelled option, as passed by untyped code. */
const unknown: object = { singal: undefined };
const blocks = { numBlocks: 1, blockSize: 4 };
const sizes = { ...unknown, numKvHeads: 1, headDim: 4 };
const pages = { pageBytes: 64, blockSize: 4 };

test.each<[name: string, call: () => unknown]>([
  ['createBlockManager', () => createBlockManager({ ...unknown, ...blocks })],
  ['createContiguousCache', () => createContiguousCache(sizes, 4)],
  ['createHeavyHitters', () => createHeavyHitters({ ...unknown, budget: 4, recentWindow: 1 })],
  ['createPageStore', () => createPageStore({ ...unknown, ...pages, warmBytes: 64 })],
  ['KvPool.create', () => KvPool.create(sizes, blocks)],
  ['KvPool.create, summaries', () => KvPool.create({ numKvHeads: 1, headDim: 4, summaries: unknown }, blocks)],
  ['KvStorage.create', () => KvStorage.create(sizes, blocks)],
  ['memoryPageFile', () => memoryPageFile(unknown)],
  ['openPageFile', () => openPageFile('never-created', unknown)],
  ['openPageFrames', () => openPageFrames(memoryPageFile(), { ...unknown, ...pages })],
  ['openSession', () => openSession(memorySource(new Uint8Array(8)), unknown)],
  ['Rotation.create', () => Rotation.create({ ...unknown, dim: 4 })],
  [
    'StreamedAttention.create',
    () => StreamedAttention.create({ ...sizes, store: createPageStore({ ...pages, warmBytes: 64 }) }),
  ],
])('%s', async (_name, call) => {
  await expect((async () => call())()).rejects.toThrow(UnknownOptionError);
});
