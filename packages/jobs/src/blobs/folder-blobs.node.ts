/** Blobs as files of a folder. */
import { readdir, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileSink, fileSource, makeFolder } from '@winnow/bytes/node';
import { checkOptions, IoError, type OptionNames } from '@winnow/tensor';
import {
  checkKey,
  type BlobContent,
  type BlobInfo,
  type BlobStore,
  type ReadBlobOptions,
  type WriteBlobOptions,
  type WrittenBlob,
} from './blob-store.js';
import { Checksum, counted, readParts } from './checksum.node.js';

export const readOptionNames: OptionNames<ReadBlobOptions> = { byteOffset: true, sha256: true, signal: true };
export const writeOptionNames: OptionNames<WriteBlobOptions> = { sha256: true, signal: true };

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

  constructor(folder: string) {
    this.name = folder;
  }

  async write(key: string, content: BlobContent, options: WriteBlobOptions = {}): Promise<WrittenBlob> {
    checkOptions(options, writeOptionNames);
    const path = this.#pathOf(key);
    await makeFolder(dirname(path));
    const checksum = new Checksum();
    const sink = await fileSink(path);
    let sha256: string;
    try {
      for await (const bytes of counted(content, checksum, options.signal)) await sink.write(bytes);
      sha256 = checksum.end(path, options.sha256);
    } catch (error) {
      await sink.abort();
      throw error;
    }
    await sink.close();
    return { key, sizeBytes: checksum.sizeBytes, sha256 };
  }

  async *read(key: string, options: ReadBlobOptions = {}): AsyncGenerator<Uint8Array, void, void> {
    checkOptions(options, readOptionNames);
    const path = this.#pathOf(key);
    yield* readParts(await fileSource(path), path, partBytes, options);
  }

  async stat(key: string): Promise<BlobInfo | undefined> {
    const found = await stat(this.#pathOf(key)).catch(noSuchFile);
    if (found?.isFile() !== true) return undefined;
    return { key, sizeBytes: found.size, modifiedAtMs: found.mtimeMs };
  }

  async delete(key: string): Promise<boolean> {
    const path = this.#pathOf(key);
    if ((await this.stat(key)) === undefined) return false;
    await rm(path, { force: true });
    return true;
  }

  async list(prefix: string): Promise<BlobInfo[]> {
    const found = await readdir(this.name, { recursive: true, withFileTypes: true }).catch(noSuchFile);
    const infos: BlobInfo[] = [];
    for (const entry of found ?? []) {
      const key = join(entry.parentPath, entry.name).slice(join(this.name, '/').length).replaceAll('\\', '/');
      if (!entry.isFile() || !key.startsWith(prefix) || key.endsWith('.part')) continue;
      const info = await this.stat(key);
      if (info !== undefined) infos.push(info);
    }
    return infos.toSorted((a, b) => (a.key < b.key ? -1 : 1));
  }

  #pathOf(key: string): string {
    checkKey(key);
    return join(this.name, ...key.split('/'));
  }
}

function noSuchFile(error: unknown): undefined {
  const code = (error as NodeJS.ErrnoException).code;
  if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
  throw new IoError({ source: 'folder', message: (error as Error).message }, { cause: error });
}
