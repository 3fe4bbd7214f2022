/**
 * Files that belong to a page's origin (OPFS, https://fs.spec.whatwg.org): saved sessions, and the cold tier of the
 * cache. Paths are relative, with `/` between folders, which are created as needed.
 */
import { blobSource, type ByteSink } from '@winnow/bytes';
import type { PageFile } from '@winnow/kv-cache';
import { ArgumentError, IoError, ReleasedError, WinnowError } from '@winnow/tensor';
import { deletedOnClose, type ColdFiles, type OpenColdFolder } from '../memory/cold-files.js';
import { openOpfsPages, type SyncFileHandle } from './opfs-pages.browser.js';
import { noSessionFiles, type SessionFiles } from '../sessions/location.js';

interface WritableFile {
  write(command: { readonly type: 'write'; readonly position: number; readonly data: Uint8Array }): Promise<void>;
  close(): Promise<void>;
  abort(): Promise<void>;
}
interface FileHandle extends SyncFileHandle {
  getFile(): Promise<Blob>;
  createWritable(): Promise<WritableFile>;
}
interface Folder {
  getDirectoryHandle(name: string, options: { readonly create: boolean }): Promise<Folder>;
  getFileHandle(name: string, options: { readonly create: boolean }): Promise<FileHandle>;
  removeEntry(name: string): Promise<void>;
  keys(): AsyncIterable<string>;
}
interface Storage {
  getDirectory?(): Promise<Folder>;
}

function storage(): Storage | undefined {
  return (globalThis as { readonly navigator?: { readonly storage?: Storage } }).navigator?.storage;
}

/** Session files in OPFS, if the host has it. A file is replaced atomically when all of it is written. */
export const opfsSessionFiles: SessionFiles = {
  async openSink(path) {
    if (storage()?.getDirectory === undefined) return noSessionFiles.openSink(path);
    const { folder, name } = await locate(String(path), true);
    return withIoErrors(String(path), async () => {
      const handle = await folder.getFileHandle(name, { create: true });
      return new OpfsSink(String(path), await handle.createWritable());
    });
  },
  async openSource(path) {
    if (storage()?.getDirectory === undefined) return noSessionFiles.openSource(path);
    const { folder, name } = await locate(String(path), false);
    return withIoErrors(String(path), async () => {
      const handle = await folder.getFileHandle(name, { create: false });
      return blobSource(await handle.getFile());
    });
  },
};

/** Temporary files in a folder. Files that a closed page left behind are removed when new ones are created. */
export const openOpfsFolder: OpenColdFolder = (path): ColdFiles => {
  if (storage()?.getDirectory === undefined) {
    const expected = 'an object that creates files, since the host has no file system';
    throw new ArgumentError({ argument: 'kvCache.offload.folder', expected, actual: String(path) });
  }
  return {
    async create(name): Promise<PageFile> {
      const fileName = `${name}-${globalThis.crypto.randomUUID()}${suffix}`;
      const { folder } = await locate(`${String(path)}/${fileName}`, true);
      return withIoErrors(`${String(path)}/${fileName}`, async () => {
        await removeLeftOvers(folder);
        const handle = await folder.getFileHandle(fileName, { create: true });
        const file = await openOpfsPages(`${String(path)}/${fileName}`, handle);
        // what cannot be removed now is removed when the next file is created
        return deletedOnClose(file, () => folder.removeEntry(fileName).catch(() => undefined));
      });
    },
  };
};

const suffix = '.pages';

/** Open files cannot be removed; they stay. */
async function removeLeftOvers(folder: Folder): Promise<void> {
  const names: string[] = [];
  for await (const name of folder.keys()) if (name.endsWith(suffix)) names.push(name);
  for (const name of names) await folder.removeEntry(name).catch(() => undefined);
}

async function locate(path: string, create: boolean): Promise<{ readonly folder: Folder; readonly name: string }> {
  const parts = path.split('/').filter((part) => part !== '' && part !== '.');
  const name = parts.pop();
  if (name === undefined || name === '..' || parts.includes('..')) {
    throw new ArgumentError({ argument: 'path', expected: 'the path of a file of this page', actual: path });
  }
  return withIoErrors(path, async () => {
    let folder = await (storage() as Required<Storage>).getDirectory();
    for (const part of parts) folder = await folder.getDirectoryHandle(part, { create });
    return { folder, name };
  });
}

async function withIoErrors<T>(source: string, action: () => Promise<T>): Promise<T> {
  try {
    return await action();
  } catch (cause) {
    if (WinnowError.isInstance(cause)) throw cause;
    const message = cause instanceof Error ? `${cause.name}: ${cause.message}` : String(cause);
    throw new IoError({ source, message }, { cause });
  }
}

class OpfsSink implements ByteSink {
  readonly name: string;
  readonly #file: WritableFile;
  #sizeBytes = 0;
  #state: 'open' | 'closed' | 'aborted' = 'open';

  constructor(name: string, file: WritableFile) {
    this.name = name;
    this.#file = file;
  }

  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  async write(bytes: Uint8Array, byteOffset: number = this.#sizeBytes): Promise<void> {
    if (this.#state === 'closed') throw new ReleasedError(this.name);
    // the API rejects shared memory
    const data = bytes.buffer instanceof ArrayBuffer ? bytes : bytes.slice();
    const position = byteOffset;
    await this.#attempt(() => this.#file.write({ type: 'write', position, data: new Uint8Array(data) }));
    this.#sizeBytes = Math.max(this.#sizeBytes, byteOffset + bytes.byteLength);
  }

  async close(): Promise<void> {
    if (this.#state === 'closed') return;
    await this.#attempt(() => this.#file.close());
    this.#state = 'closed';
  }

  async abort(): Promise<void> {
    if (this.#state !== 'open') return;
    this.#state = 'aborted';
    await this.#file.abort().catch(() => undefined);
  }

  async #attempt(action: () => Promise<void>): Promise<void> {
    if (this.#state === 'aborted') throw new ReleasedError(this.name);
    try {
      await withIoErrors(this.name, action);
    } catch (error) {
      await this.abort();
      throw error;
    }
  }
}
