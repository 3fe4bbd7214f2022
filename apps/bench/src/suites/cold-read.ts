/** Reads pages with their checksums, and the same file sequentially: from the disk, not from the page cache. */
import { open, rm, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { createPageStore, openPageFrames } from '@winnow/kv-cache';
import { openPageFile } from '@winnow/kv-cache/node';
import type { Contender } from '../harness/measure.js';
import { dropFromPageCache } from '../harness/page-cache.js';

const slotsPerPage = 2048;
/** Number of concurrent reads, as for a chunk of the context. */
const numAtOnce = 8;

export interface ColdRead {
  /** Number of bytes that each contender reads. */
  readonly sizeBytes: number;
  readonly contenders: Readonly<Record<'pages' | 'disk', Contender>>;
  dispose(): Promise<void>;
}

/** @param pageBytes of one page, of which `numPages` are written */
export async function coldRead(folder: string, pageBytes: number, numPages: number): Promise<ColdRead> {
  const path = join(folder, `cold-read-${process.pid}.pages`);
  const file = await openPageFile(path);
  const frames = await openPageFrames(file, { pageBytes, blockSize: slotsPerPage });
  const store = createPageStore({ pageBytes, blockSize: slotsPerPage, warmBytes: 0, frames });
  const positions = Int32Array.from({ length: slotsPerPage }, (_, index) => index);
  const page = new Uint8Array(pageBytes);
  for (let id = 0; id < numPages; id++) {
    page.fill(id);
    await store.put(id, page, positions);
  }
  await store.flush();
  const { frameBytes } = frames;
  const raw = await open(path, 'r');
  const buffers = Array.from({ length: numAtOnce }, () => new Uint8Array(frameBytes));
  const pages = Array.from({ length: numAtOnce }, () => new Uint8Array(pageBytes));
  const timed = async (read: (id: number, slot: number) => Promise<unknown>): Promise<number> => {
    await dropFromPageCache(path);
    const startMs = performance.now();
    let next = 0;
    const work = async (slot: number): Promise<void> => {
      for (let id = next++; id < numPages; id = next++) await read(id, slot);
    };
    await Promise.all(buffers.map((_, slot) => work(slot)));
    return performance.now() - startMs;
  };
  return {
    sizeBytes: numPages * pageBytes,
    contenders: {
      pages: { run: () => timed((id, slot) => store.read(id, pages[slot]!)) },
      disk: { run: () => timed((id, slot) => readRaw(raw, buffers[slot]!, id * frameBytes)) },
    },
    async dispose() {
      await store.close();
      await raw.close();
      await rm(path, { force: true });
    },
  };
}

async function readRaw(file: FileHandle, target: Uint8Array, position: number): Promise<void> {
  let filled = 0;
  while (filled < target.length) {
    const { bytesRead } = await file.read(target, filled, target.length - filled, position + filled);
    if (bytesRead === 0) return;
    filled += bytesRead;
  }
}
