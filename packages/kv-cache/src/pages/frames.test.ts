/** Page files under I/O faults and damage. */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ArgumentError, CapacityError, createRng, FormatError, IoError, ReleasedError } from '@winnow/tensor';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { faultyOpen, noFaults } from '../../test/faulty-file.js';
import { memoryPageFile, openPageFrames, PageError, type PageFrames } from '../index.js';
import { openPageFile } from '../index.node.js';

const shape = { pageBytes: 1000, blockSize: 4 };
const pageOf = (value: number): Uint8Array => new Uint8Array(1000).fill(value);
const positionsOf = (pageId: number): number[] => [pageId * 4, pageId * 4 + 1, pageId * 4 + 2, -1];

async function readPage(frames: PageFrames, pageId: number): Promise<Uint8Array> {
  const target = new Uint8Array(1000).fill(99);
  await frames.read(pageId, target);
  return target;
}

let folder: string;
let path: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'winnow-pages-'));
  path = join(folder, 'kv.pages');
});
afterEach(() => rm(folder, { recursive: true }));

describe('frames', () => {
  it('are found after reopening, newest version first', async () => {
    const frames = await openPageFrames(await openPageFile(path), shape);
    for (const [pageId, value] of [
      [3, 1],
      [2 ** 40, 2],
      [3, 7],
      [5, 8],
    ]) {
      await frames.write(pageId, pageOf(value), positionsOf(pageId));
    }
    frames.delete(5);
    await frames.sync();
    await frames.close();
    await expect(readPage(frames, 3)).rejects.toThrow(IoError);
    const again = await openPageFrames(await openPageFile(path, { keep: true }), shape);
    expect(again.damaged).toEqual([]);
    expect(await readPage(again, 3)).toEqual(pageOf(7));
    expect(await readPage(again, 2 ** 40)).toEqual(pageOf(2));
    expect([...(again.positions(3) as Int32Array)]).toEqual(positionsOf(3));
    await again.close();
  });

  it('respect a limit and reuse free frames', async () => {
    const file = memoryPageFile();
    const limited = await openPageFrames(file, { ...shape, maxBytes: 3 * 1536 });
    expect(limited.frameBytes).toBe(1536);
    for (const pageId of [0, 1, 2]) await limited.write(pageId, pageOf(pageId), positionsOf(pageId));
    await expect(limited.write(3, pageOf(3), positionsOf(3))).rejects.toThrow(CapacityError);
    limited.delete(1);
    await limited.write(3, pageOf(3), positionsOf(3));
    expect(await readPage(limited, 3)).toEqual(pageOf(3));
    expect([limited.usedBytes, file.sizeBytes]).toEqual([3 * 1536, 3 * 1536]);
  });

  it('reject invalid pages and files with another page size', async () => {
    const file = memoryPageFile();
    const frames = await openPageFrames(file, shape);
    await expect(frames.write(0, new Uint8Array(5), [])).rejects.toThrow(ArgumentError);
    await expect(frames.write(-1, pageOf(0), [])).rejects.toThrow(ArgumentError);
    await expect(frames.read(9, pageOf(0))).rejects.toThrow(ArgumentError);
    await frames.write(0, pageOf(0), positionsOf(0));
    await expect(openPageFrames(file, { pageBytes: 900, blockSize: 4 })).rejects.toThrow(FormatError);
    await file.close();
    await expect(file.write(0, pageOf(0))).rejects.toThrow(ReleasedError);
  });
});

describe('concurrent calls', () => {
  it('the last write wins, and a read returns one complete version', async () => {
    const frames = await openPageFrames(await openPageFile(path), shape);
    const rng = createRng(3);
    await frames.write(1, pageOf(0), positionsOf(1));
    for (let round = 0; round < 20; round++) {
      const versions = [1, 2, 3, 4].map((i) => 4 * round + i);
      const reads = [0, 1].map(() => readPage(frames, 1));
      const writes = versions.map((value) => frames.write(1, pageOf(value), positionsOf(1)));
      if (rng.nextInt(2) === 0) reads.push(readPage(frames, 1));
      for (const page of await Promise.all(reads)) expect(page.every((byte) => byte === page[0])).toBe(true);
      await Promise.all(writes);
      expect(await readPage(frames, 1)).toEqual(pageOf(4 * round + 4));
    }
    expect(frames.numPages).toBe(1);
    const writing = frames.write(1, pageOf(200), positionsOf(1));
    frames.delete(1);
    await writing;
    expect(frames.has(1)).toBe(false);
    expect(frames.usedBytes).toBe(0);
    await frames.close();
  });
});

describe('faults', () => {
  it.each([7, 80, 100, 700])('short reads and writes of %i bytes are continued', async (maxTransfer) => {
    const faults = { ...noFaults(), maxTransfer }; // header and positions are 80 bytes
    const frames = await openPageFrames(await openPageFile(path, { open: faultyOpen(faults) }), shape);
    await frames.write(1, pageOf(5), positionsOf(1));
    expect(await readPage(frames, 1)).toEqual(pageOf(5));
    await frames.close();
  });

  it.each(['ENOSPC', 'EIO', 'EDQUOT'])('%s while writing keeps the old page', async (code) => {
    const faults = noFaults();
    const frames = await openPageFrames(await openPageFile(path, { open: faultyOpen(faults) }), shape);
    await frames.write(1, pageOf(5), positionsOf(1));
    faults.writeError = code;
    faults.writtenBeforeError = 600;
    await expect(frames.write(1, pageOf(6), positionsOf(1))).rejects.toThrow(IoError);
    await expect(frames.write(2, pageOf(6), positionsOf(2))).rejects.toThrow(code);
    expect(frames.has(2)).toBe(false);
    expect(await readPage(frames, 1)).toEqual(pageOf(5));
    faults.writeError = undefined;
    await frames.write(2, pageOf(7), positionsOf(2));
    expect(await readPage(frames, 2)).toEqual(pageOf(7));
    faults.syncError = code;
    await expect(frames.sync()).rejects.toThrow(IoError);
    await frames.close();
    const again = await openPageFrames(await openPageFile(path, { keep: true }), shape);
    expect(await readPage(again, 1)).toEqual(pageOf(5));
    expect(await readPage(again, 2)).toEqual(pageOf(7));
    await again.close();
  });

  it('EIO while reading names the affected positions', async () => {
    const faults = noFaults();
    const frames = await openPageFrames(await openPageFile(path, { open: faultyOpen(faults) }), shape);
    await frames.write(4, pageOf(5), positionsOf(4));
    faults.readError = 'EIO';
    const error = await readPage(frames, 4).catch((caught: unknown) => caught);
    expect(PageError.isInstance(error)).toBe(true);
    expect(error).toMatchObject({ pageIds: [4], positions: [16, 17, 18], source: path, byteOffset: 0, code: 'io' });
    expect(String(error)).toContain('page 4 (positions 16 to 18)');
    faults.readError = undefined;
    expect(await readPage(frames, 4)).toEqual(pageOf(5));
    await frames.close();
  });
});

describe('damage', () => {
  it('a flipped bit anywhere is detected, live and on reopening, and never returned', async () => {
    const frames = await openPageFrames(await openPageFile(path), shape);
    for (const pageId of [0, 1, 2]) await frames.write(pageId, pageOf(pageId), positionsOf(pageId));
    const clean = new Uint8Array(await readFile(path));
    const rng = createRng(8);
    let numNamed = 0;
    for (let trial = 0; trial < 60; trial++) {
      const flipped = clean.slice();
      const byte = 1536 + (trial < 20 ? rng.nextInt(80) : rng.nextInt(1080)); // header, then anywhere
      flipped[byte] ^= 1 << rng.nextInt(8);
      await writeFile(path, flipped);
      const target = pageOf(99);
      await expect(frames.read(1, target)).rejects.toThrow(PageError);
      expect(target.every((value) => value === 0)).toBe(true);
      expect(await readPage(frames, 2)).toEqual(pageOf(2));
      const file = await openPageFile(path, { keep: true });
      const again = await openPageFrames(file, shape).catch((error: unknown) => error);
      await file.close();
      if (FormatError.isInstance(again)) continue; // version or page size: the whole file is rejected
      const { damaged, pageIds } = again as PageFrames;
      expect(pageIds).toEqual([0, 2]);
      expect(damaged).toHaveLength(1);
      expect(damaged[0].byteOffset).toBe(1536);
      if (damaged[0].pageId === undefined) continue;
      expect(damaged[0]).toMatchObject({ pageId: 1, positions: [4, 5, 6] });
      numNamed++;
    }
    expect(numNamed).toBeGreaterThan(0);
    await frames.close();
  });

  it('a truncated file loses and reports only the missing frames', async () => {
    const frames = await openPageFrames(await openPageFile(path), shape);
    for (const pageId of [0, 1, 2]) await frames.write(pageId, pageOf(pageId + 1), positionsOf(pageId));
    await frames.write(0, pageOf(9), positionsOf(0)); // in a new frame: the first one is outdated now
    const clean = new Uint8Array(await readFile(path));
    for (let length = 0; length <= clean.length; length += 61) {
      await writeFile(path, clean.subarray(0, length));
      const again = await openPageFrames(await openPageFile(path, { keep: true }), shape);
      // a frame is complete even if its zero padding is cut off
      const numWhole = [0, 1, 2, 3].filter((frame) => length >= frame * 1536 + 64 + 16 + 1000).length;
      expect(again.numPages).toBe(Math.min(numWhole, 3));
      for (const pageId of again.pageIds) {
        expect(await readPage(again, pageId)).toEqual(pageOf(pageId === 0 && numWhole === 4 ? 9 : pageId + 1));
      }
      const isTruncatedVisible = length % 1536 > 0 && numWhole < Math.ceil(length / 1536);
      expect(again.damaged).toHaveLength(isTruncatedVisible ? 1 : 0);
      await again.close();
    }
    await frames.close();
  });
});
