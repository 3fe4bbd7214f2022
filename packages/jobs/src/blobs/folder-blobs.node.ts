/** Blobs as files of a folder. */
import { readdir, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileSink, fileSource, makeFolder, type ResumableSink } from '@winnow/bytes/node';
import { checkOptions } from '@winnow/tensor';
import { BlobError, existingBlob, missingBlob } from './blob-error.js';
import {
  callOptionNames,
  checkKey,
  readOptionNames,
  writeOptionNames,
  type BlobCallOptions,
  type BlobContent,
  type BlobInfo,
  type BlobStore,
  type ReadBlobOptions,
  type WriteBlobOptions,
  type WrittenBlob,
} from './blob-store.js';
import { Checksum, counted, readParts } from './checksum.node.js';

const partBytes = 256 * 1024;

/**
 * Keys are paths below the folder, and contents plain files. Writing is atomic and flushed to the disk.
 * @param folder created when something is written
 */
export function createFolderBlobStore(folder: string): BlobStore {
  return new FolderBlobStore(folder);
}

class FolderBlobStore implements BlobStore {
  readonly name: string;
  readonly canList = true;
  readonly canResume = true;

  constructor(folder: string) {
    this.name = folder;
  }

  async write(key: string, content: BlobContent, options: WriteBlobOptions = {}): Promise<WrittenBlob> {
    checkOptions(options, writeOptionNames);
    const { ifAbsent = false, resume = false, sha256, signal } = options;
    const path = this.#pathOf(key);
    if (ifAbsent && (await this.stat(key)) !== undefined) throw existingBlob(path);
    await makeFolder(dirname(path));
    const checksum = new Checksum();
    const sink = await fileSink(path, { isNew: ifAbsent, resume });
    try {
      const resumedBytes = await copy(counted(content, checksum, signal), sink);
      const actual = checksum.end(path, sha256);
      await sink.close();
      return { key, sizeBytes: checksum.sizeBytes, sha256: actual, resumedBytes };
    } catch (error) {
      await sink.abort();
      throw (error as { cause?: NodeJS.ErrnoException }).cause?.code === 'EEXIST' ? existingBlob(path) : error;
    }
  }

  async *read(key: string, options: ReadBlobOptions = {}): AsyncGenerator<Uint8Array, void, void> {
    checkOptions(options, readOptionNames);
    const path = this.#pathOf(key);
    const source = await fileSource(path).catch((error: Error) => {
      throw (error.cause as NodeJS.ErrnoException | undefined)?.code === 'ENOENT' ? missingBlob(path) : error;
    });
    yield* readParts(source, path, partBytes, options);
  }

  async stat(key: string, options: BlobCallOptions = {}): Promise<BlobInfo | undefined> {
    checkOptions(options, callOptionNames);
    options.signal?.throwIfAborted();
    const found = await stat(this.#pathOf(key)).catch(noSuchFile);
    if (found?.isFile() !== true) return undefined;
    return { key, sizeBytes: found.size, modifiedAtMs: found.mtimeMs };
  }

  async delete(key: string, options: BlobCallOptions = {}): Promise<boolean> {
    const path = this.#pathOf(key);
    if ((await this.stat(key, options)) === undefined) return false;
    await rm(path, { force: true });
    return true;
  }

  async list(prefix: string, options: BlobCallOptions = {}): Promise<BlobInfo[]> {
    checkOptions(options, callOptionNames);
    const found = await readdir(this.name, { recursive: true, withFileTypes: true }).catch(noSuchFile);
    const infos: BlobInfo[] = [];
    for (const entry of found ?? []) {
      const key = join(entry.parentPath, entry.name).slice(join(this.name, '/').length).replaceAll('\\', '/');
      if (!entry.isFile() || !key.startsWith(prefix) || key.endsWith('.part')) continue;
      const info = await this.stat(key, options);
      if (info !== undefined) infos.push(info);
    }
    return infos.toSorted((a, b) => (a.key < b.key ? -1 : 1));
  }

  #pathOf(key: string): string {
    checkKey(key);
    return join(this.name, ...key.split('/'));
  }
}

/** @returns number of bytes at the beginning that were there already */
async function copy(content: AsyncIterable<Uint8Array>, sink: ResumableSink): Promise<number> {
  let numEqual = 0;
  let offset = 0;
  for await (const bytes of content) {
    const isNext = numEqual === offset && offset + bytes.byteLength <= sink.leftBytes;
    if (isNext && Buffer.compare(await sink.readLeft(offset, bytes.byteLength), bytes) === 0) {
      numEqual += bytes.byteLength;
    } else {
      await sink.write(bytes, offset);
    }
    offset += bytes.byteLength;
  }
  await sink.write(new Uint8Array(0), offset); // the file ends here, also when all of it was there
  return numEqual;
}

function noSuchFile(error: unknown): undefined {
  const code = (error as NodeJS.ErrnoException).code;
  if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
  throw new BlobError({ source: 'folder', reason: 'failed', message: (error as Error).message }, { cause: error });
}
