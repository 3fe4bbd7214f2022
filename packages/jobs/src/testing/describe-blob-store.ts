/** The conformance suite of blob stores, as vitest tests. */
import { ArgumentError, IoError } from '@winnow/tensor';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { BlobInfo, BlobStore, ReadBlobOptions } from '../blobs/blob-store.js';

export interface DescribeBlobStoreOptions {
  readonly name: string;
  /** Opens an empty store. */
  open(): Promise<{ readonly store: BlobStore; close?(): void | Promise<void> }>;
}

/** Larger than any buffer of a store, in parts of odd sizes. */
const largeParts = Array.from({ length: 130 }, (_, part) =>
  Uint8Array.from({ length: 20_011 }, (_value, i) => (i * 31 + part * 17) & 255),
);
const large = joined(largeParts);
const bytesOf = (text: string): Uint8Array<ArrayBuffer> => new TextEncoder().encode(text);
const textOf = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);

function joined(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(parts.reduce((total, part) => total + part.byteLength, 0));
  let offset = 0;
  for (const part of parts) {
    bytes.set(part, offset);
    offset += part.byteLength;
  }
  return bytes;
}

async function sha256Of(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

async function readAll(store: BlobStore, key: string, options: ReadBlobOptions = {}): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  for await (const part of store.read(key, options)) parts.push(part.slice()); // parts are reused
  return joined(parts);
}

/** Registers the suite. */
export function describeBlobStore({ name, open }: DescribeBlobStoreOptions): void {
  describe(`blob store ${name}`, () => {
    let opened: Awaited<ReturnType<typeof open>>;
    const use = (): BlobStore => opened.store;
    beforeAll(async () => {
      opened = await open();
    });
    afterAll(async () => opened.close?.());
    testContents(use);
    testReplacements(use);
    testFailures(use);
    testKeys(use);
  });
}

function testContents(use: () => BlobStore): void {
  it('gives what was written, streamed in parts', async () => {
    const written = await use().write('files/large.bin', largeParts);
    expect(written).toMatchObject({
      key: 'files/large.bin',
      sizeBytes: large.byteLength,
      sha256: await sha256Of(large),
    });
    expect(await readAll(use(), 'files/large.bin', { sha256: written.sha256 })).toEqual(large);
    expect(await use().stat('files/large.bin')).toMatchObject({ sizeBytes: large.byteLength });
    let numParts = 0;
    for await (const _part of use().read('files/large.bin')) if (++numParts === 2) break;
    expect(numParts).toBe(2);
  });

  it('reads from an offset', async () => {
    await use().write('offset', [bytesOf('0123456789')]);
    expect(textOf(await readAll(use(), 'offset', { byteOffset: 7 }))).toBe('789');
    expect(textOf(await readAll(use(), 'offset', { byteOffset: 10 }))).toBe('');
    await expect(readAll(use(), 'offset', { byteOffset: 11 })).rejects.toSatisfy(ArgumentError.isInstance);
  });

  it('reads ranges; a checksum is that of the whole', async () => {
    const { sha256 } = await use().write('range', [bytesOf('0123456789')]);
    const other = { sha256: await sha256Of(bytesOf('other')) };
    expect(textOf(await readAll(use(), 'range', { byteOffset: 2, byteLength: 3, ...other }))).toBe('234');
    expect(textOf(await readAll(use(), 'range', { byteOffset: 8, byteLength: 30 }))).toBe('89');
    expect(textOf(await readAll(use(), 'range', { byteLength: 0 }))).toBe('');
    expect(textOf(await readAll(use(), 'range', { byteLength: 10, sha256 }))).toBe('0123456789');
    await expect(readAll(use(), 'range', { byteLength: 10, ...other })).rejects.toMatchObject({ reason: 'checksum' });
    await expect(readAll(use(), 'range', { byteLength: -1 })).rejects.toSatisfy(ArgumentError.isInstance);
  });
}

function testReplacements(use: () => BlobStore): void {
  it('reads one version only, if that is asked for', async () => {
    await use().write('version', [bytesOf('first')]);
    const { version } = (await use().stat('version')) as BlobInfo;
    if (version === undefined) return; // the store has none
    expect(textOf(await readAll(use(), 'version', { version, byteOffset: 1, byteLength: 2 }))).toBe('ir');
    await use().write('version', [bytesOf('second')]);
    const read = readAll(use(), 'version', { version, byteOffset: 1, byteLength: 2 });
    await expect(read).rejects.toMatchObject({ name: 'BlobError', reason: 'changed' });
  });

  it('writes only what is not there', async () => {
    await use().write('new', [bytesOf('first')], { ifAbsent: true });
    const second = use().write('new', [bytesOf('second')], { ifAbsent: true });
    await expect(second).rejects.toMatchObject({ name: 'BlobError', reason: 'exists' });
    expect(textOf(await readAll(use(), 'new'))).toBe('first');
    const both = await Promise.allSettled(
      ['one', 'two'].map((text) => use().write('race', [bytesOf(text)], { ifAbsent: true })),
    );
    const winner = both.findIndex(({ status }) => status === 'fulfilled');
    expect(both[1 - winner]).toMatchObject({ status: 'rejected', reason: { reason: 'exists' } });
    expect(textOf(await readAll(use(), 'race'))).toBe(['one', 'two'][winner]);
  });

  it('replaces content, also by none', async () => {
    await use().write('twice', [bytesOf('first, and longer')]);
    await use().write('twice', [bytesOf('second')]);
    expect(textOf(await readAll(use(), 'twice'))).toBe('second');
    expect((await use().write('twice', [])).sha256).toBe(await sha256Of(new Uint8Array(0)));
    expect(textOf(await readAll(use(), 'twice'))).toBe('');
    expect(await use().stat('twice')).toMatchObject({ sizeBytes: 0 });
  });

  it('deletes', async () => {
    await use().write('gone', [bytesOf('x')]);
    expect(await use().delete('gone')).toBe(true);
    expect(await use().delete('gone')).toBe(false);
    expect(await use().stat('gone')).toBe(undefined);
    await expect(readAll(use(), 'gone')).rejects.toMatchObject({ code: 'io', reason: 'missing' });
  });
}

function testFailures(use: () => BlobStore): void {
  it('keeps the old content when the new one fails half-way', async () => {
    await use().write('kept', [bytesOf('old')]);
    async function* failing(): AsyncGenerator<Uint8Array, void, void> {
      yield* largeParts;
      throw new IoError({ source: 'upload', message: 'the client has gone' });
    }
    await expect(use().write('kept', failing())).rejects.toThrow('the client has gone');
    expect(textOf(await readAll(use(), 'kept'))).toBe('old');
    await expect(use().write('none', failing())).rejects.toThrow('the client has gone');
    expect(await use().stat('none')).toBe(undefined);
  });

  it('goes on with a write that failed, if it can', async () => {
    async function* failing(): AsyncGenerator<Uint8Array, void, void> {
      yield* largeParts.slice(0, 100);
      throw new IoError({ source: 'upload', message: 'the client has gone' });
    }
    await expect(use().write('again', failing(), { resume: true })).rejects.toThrow('the client has gone');
    expect(await use().stat('again')).toBe(undefined);
    const { resumedBytes, sha256 } = await use().write('again', largeParts, { resume: true });
    expect(resumedBytes).toBeGreaterThanOrEqual(0);
    if (!use().canResume) expect(resumedBytes).toBe(0);
    expect(await readAll(use(), 'again', { sha256 })).toEqual(large);
    expect((await use().write('again', [bytesOf('short')], { resume: true })).resumedBytes).toBe(0);
    expect(textOf(await readAll(use(), 'again'))).toBe('short');
  });

  it('rejects content with another checksum, on both ways', async () => {
    const [right, wrong] = [await sha256Of(bytesOf('content')), await sha256Of(bytesOf('other'))];
    await use().write('checked', [bytesOf('content')], { sha256: right });
    await expect(use().write('checked', [bytesOf('changed')], { sha256: wrong })).rejects.toThrow(/checksum differs/);
    expect(textOf(await readAll(use(), 'checked', { sha256: right.toUpperCase() }))).toBe('content');
    await expect(readAll(use(), 'checked', { sha256: wrong })).rejects.toThrow(/checksum differs/);
  });

  it('ends when it is aborted', async () => {
    const ending = new AbortController();
    async function* endless(): AsyncGenerator<Uint8Array, void, void> {
      for (let part = 0; ; part++) {
        if (part === 5) ending.abort();
        yield largeParts[0] as Uint8Array;
        await new Promise((resolve) => setTimeout(resolve, 0));
      }
    }
    await expect(use().write('aborted', endless(), { signal: ending.signal })).rejects.toThrow(/abort/);
    expect(await use().stat('aborted')).toBe(undefined);
  });
}

function testKeys(use: () => BlobStore): void {
  it('rejects keys that are no paths below it', async () => {
    for (const key of [
      '',
      '/a',
      'a/',
      'a//b',
      '../a',
      'a/../b',
      'a/./b',
      '.hidden',
      'a b',
      'a\\b',
      'a.part',
      'x'.repeat(513),
    ]) {
      await expect(use().write(key, [])).rejects.toSatisfy(ArgumentError.isInstance);
      await expect(use().stat(key)).rejects.toSatisfy(ArgumentError.isInstance);
      await expect(readAll(use(), key)).rejects.toSatisfy(ArgumentError.isInstance);
    }
  });

  it('lists by prefix, or says that it cannot', async () => {
    if (!use().canList) {
      await expect(use().list('')).rejects.toSatisfy(ArgumentError.isInstance);
      return;
    }
    for (const key of ['list/b', 'list/a/2', 'list/a/1', 'list/a-1', 'listed']) await use().write(key, [bytesOf(key)]);
    const keysOf = async (prefix: string): Promise<string[]> => (await use().list(prefix)).map(({ key }) => key);
    expect(await keysOf('list/')).toEqual(['list/a-1', 'list/a/1', 'list/a/2', 'list/b']);
    expect(await keysOf('list/a/')).toEqual(['list/a/1', 'list/a/2']);
    expect((await use().list('listed'))[0]).toMatchObject({ sizeBytes: 6 });
    expect(await keysOf('none/')).toEqual([]);
  });
}
