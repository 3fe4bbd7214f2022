/** The contract of every source, and the specifics of memory, Blob and slices. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { IoError, ReleasedError } from '@winnow/tensor';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ByteSource } from './byte-source.js';
import { blobSource, httpSource, memorySource, readBytes, sliceSource } from './index.js';
import { fileSource } from './index.node.js';
import { serveBytes, type TestServer } from '@winnow/test-utils';

const sizeBytes = 1000;
const content = Uint8Array.from({ length: sizeBytes }, (_, index) => (index * 7 + (index >> 8)) & 255);
let folder: string;
let server: TestServer;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'winnow-bytes-'));
  await writeFile(join(folder, 'content'), content);
  server = await serveBytes({ '/content': content });
});
afterAll(async () => {
  await server.close();
  await rm(folder, { recursive: true });
});

const framed = new Uint8Array(sizeBytes + 20);
framed.set(content, 13);
const sources: Record<string, () => ByteSource | Promise<ByteSource>> = {
  'memory, array': () => memorySource(content),
  'memory, buffer': () => memorySource(content.slice().buffer),
  'memory, view at an offset': () => memorySource(framed.subarray(13, 13 + sizeBytes)),
  blob: () => blobSource(new Blob([content])),
  slice: () => sliceSource(memorySource(framed), 13, sizeBytes),
  file: () => fileSource(join(folder, 'content')),
  http: () => httpSource(`${server.url}/content`),
};

describe.each(Object.entries(sources))('%s', (_, create) => {
  it('reads any range, many concurrently', async () => {
    const source = await create();
    expect(source.sizeBytes).toBe(sizeBytes);
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(fc.nat(sizeBytes), fc.nat(sizeBytes)), { minLength: 1, maxLength: 4 }),
        async (pairs) => {
          await Promise.all(
            pairs.map(async ([a, b]) => {
              const [start, end] = [Math.min(a, b), Math.max(a, b)];
              expect(await readBytes(source, start, end - start)).toEqual(content.slice(start, end));
            }),
          );
        },
      ),
      { numRuns: 40 },
    );
    expect(await readBytes(source)).toEqual(content);
    await source.close();
  });

  it('writes only into the target', async () => {
    const source = await create();
    const memory = new Uint8Array(40).fill(0xaa);
    await source.read(5, memory.subarray(10, 30));
    expect(memory.subarray(0, 10)).toEqual(new Uint8Array(10).fill(0xaa));
    expect(memory.subarray(10, 30)).toEqual(content.slice(5, 25));
    expect(memory.subarray(30)).toEqual(new Uint8Array(10).fill(0xaa));
    await source.close();
  });

  it.each([
    [-1, 1],
    [sizeBytes, 1],
    [sizeBytes - 1, 2],
    [0.5, 1],
    [Number.NaN, 1],
    [2 ** 60, 1],
  ])('rejects the range at %d of %d bytes', async (byteOffset, numBytes) => {
    const source = await create();
    await expect(source.read(byteOffset, new Uint8Array(numBytes))).rejects.toThrow(IoError);
    await source.close();
  });

  it('throws the reason of an abort, and ReleasedError after close, which may be called twice', async () => {
    const source = await create();
    const reason = new Error('stop');
    await expect(source.read(0, new Uint8Array(1), { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    await source.close();
    await source.close();
    await expect(source.read(0, new Uint8Array(1))).rejects.toThrow(ReleasedError);
  });
});

describe('memorySource', () => {
  it('is named by the caller, or memory', () => {
    expect(memorySource(content).name).toBe('memory');
    expect(memorySource(content, 'x').name).toBe('x');
  });
});

describe('blobSource', () => {
  it('takes the name of a File', () => {
    expect(blobSource(new File(['x'], 'model.gguf')).name).toBe('model.gguf');
    expect(blobSource(new Blob(['x'])).name).toBe('blob');
  });

  it('turns a failing Blob into an IoError', async () => {
    const broken = { size: 4, slice: () => ({ arrayBuffer: () => Promise.reject(new Error('NotReadable')) }) };
    const shrunk = { size: 4, slice: () => new Blob(['xy']) };
    await expect(readBytes(blobSource(broken as unknown as Blob))).rejects.toThrow(/blob at byte 0: .*NotReadable/);
    await expect(readBytes(blobSource(shrunk as unknown as Blob))).rejects.toThrow(/expected 4 bytes, got 2/);
  });
});

describe('sliceSource', () => {
  it('rejects a window outside the source, and leaves the source open', async () => {
    const source = memorySource(content);
    expect(() => sliceSource(source, 990, 11)).toThrow(IoError);
    expect(() => sliceSource(source, 1001)).toThrow(IoError);
    expect(() => sliceSource(source, -1, 1)).toThrow(IoError);
    const slice = sliceSource(source, 990);
    expect(slice.sizeBytes).toBe(10);
    await slice.close();
    expect((await readBytes(source)).byteLength).toBe(sizeBytes);
  });
});

describe('readBytes', () => {
  it('checks the range before it allocates', async () => {
    await expect(readBytes(memorySource(content), 0, 2 ** 52)).rejects.toThrow(IoError);
    await expect(readBytes(memorySource(content), 2000)).rejects.toThrow(IoError);
  });
});
