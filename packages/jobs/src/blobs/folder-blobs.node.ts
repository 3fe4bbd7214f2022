/** Blobs as files of a folder. */
import { readdir, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileSink, fileSource, makeFolder, type ResumableSink } from '@winnow/bytes/node';
import { checkOptions, IoError } from '@winnow/tensor';
import { BlobError, changedBlob, existingBlob, missingBlob, withReason, type BlobErrorReason } from './blob-error.js';
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
 * @param folder created at the first write
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
    const checksum = new Checksum();
    const sink = await onDisk(path, async () => {
      await makeFolder(dirname(path));
      return fileSink(path, { isNew: ifAbsent, resume });
    });
    try {
      const resumedBytes = await copy(counted(content, checksum, signal), sink);
      const actual = checksum.end(path, sha256);
      await sink.close().catch((error: unknown) => {
        throw codeOf(error) === 'EEXIST' ? existingBlob(path) : diskError(path, error);
      });
      return { key, sizeBytes: checksum.sizeBytes, sha256: actual, resumedBytes };
    } catch (error) {
      await sink.abort();
      throw error;
    }
  }

  async *read(key: string, options: ReadBlobOptions = {}): AsyncGenerator<Uint8Array, void, void> {
    checkOptions(options, readOptionNames);
    const path = this.#pathOf(key);
    const { signal, version } = options;
    if (version !== undefined) {
      const found = await this.stat(key, signal === undefined ? {} : { signal });
      if (found === undefined) throw missingBlob(path);
      if (found.version !== version) throw changedBlob(path, version, found.version as string);
    }
    try {
      yield* readParts(await fileSource(path), path, partBytes, options);
    } catch (error) {
      throw isMissing(error) ? missingBlob(path) : diskError(path, error);
    }
  }

  async stat(key: string, options: BlobCallOptions = {}): Promise<BlobInfo | undefined> {
    checkOptions(options, callOptionNames);
    options.signal?.throwIfAborted();
    const path = this.#pathOf(key);
    const found = await ifThere(path, () => stat(path));
    if (found?.isFile() !== true) return undefined;
    const { size: sizeBytes, mtimeMs: modifiedAtMs, ino } = found;
    return { key, sizeBytes, modifiedAtMs, version: `${ino}-${modifiedAtMs}-${sizeBytes}` };
  }

  async delete(key: string, options: BlobCallOptions = {}): Promise<boolean> {
    const path = this.#pathOf(key);
    if ((await this.stat(key, options)) === undefined) return false;
    await onDisk(path, () => rm(path, { force: true }));
    return true;
  }

  async list(prefix: string, options: BlobCallOptions = {}): Promise<BlobInfo[]> {
    checkOptions(options, callOptionNames);
    const found = await ifThere(this.name, () => readdir(this.name, { recursive: true, withFileTypes: true }));
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

/** @returns the number of bytes at the beginning that were stored already */
async function copy(content: AsyncIterable<Uint8Array>, sink: ResumableSink): Promise<number> {
  let numEqual = 0;
  let offset = 0;
  for await (const bytes of content) {
    const isNext = numEqual === offset && offset + bytes.byteLength <= sink.leftBytes;
    offset = await onDisk(sink.name, async () => {
      if (isNext && Buffer.compare(await sink.readLeft(offset, bytes.byteLength), bytes) === 0) {
        numEqual += bytes.byteLength;
      } else {
        await sink.write(bytes, offset);
      }
      return offset + bytes.byteLength;
    });
  }
  await onDisk(sink.name, () => sink.write(new Uint8Array(0), offset)); // the file ends here, also when all of it was there
  return numEqual;
}

/** Reasons by error codes of the file system. */
const reasonsOfCodes: Readonly<Record<string, BlobErrorReason>> = {
  EACCES: 'denied',
  EPERM: 'denied',
  EROFS: 'denied',
};

/** The code of a file system error, such as `ENOENT`. */
function codeOf(error: unknown): string | undefined {
  const { code } = ((IoError.isInstance(error) ? error.cause : error) ?? {}) as { readonly code?: unknown };
  return typeof code === 'string' && /^E[A-Z0-9]+$/.test(code) ? code : undefined;
}

function isMissing(error: unknown): boolean {
  return ['ENOENT', 'ENOTDIR'].includes(codeOf(error) ?? '');
}

/** Converts an error of the file system; others, such as the reason of a signal, stay unchanged. */
function diskError(path: string, error: unknown): unknown {
  const code = codeOf(error);
  if (BlobError.isInstance(error) || !(IoError.isInstance(error) || code !== undefined)) return error;
  return withReason(path, error as Error, reasonsOfCodes[code ?? ''] ?? 'failed');
}

async function onDisk<T>(path: string, operation: () => Promise<T>): Promise<T> {
  try {
    return await operation();
  } catch (error) {
    throw diskError(path, error);
  }
}

/** Undefined when there is no such file or folder. @throws {BlobError} */
async function ifThere<T>(path: string, operation: () => Promise<T>): Promise<T | undefined> {
  try {
    return await operation();
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw diskError(path, error);
  }
}
