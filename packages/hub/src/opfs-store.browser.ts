/**
 * One repository in a folder of the origin private file system (https://fs.spec.whatwg.org), in a worker:
 *
 *   blobs/<etag>              content, complete and verified; `<etag>.incomplete` during the download
 *   refs/<revision>           the commit of a branch or tag, with percent-encoding
 *   listings/<commit>.json    the files of a commit
 */
import { sha1 } from '@noble/hashes/legacy.js';
import { sha256 } from '@noble/hashes/sha2.js';
import { bytesToHex } from '@noble/hashes/utils.js';
import { CapacityError } from '@winnow/tensor';
import { HubError } from './download/error.js';
import { isCommit, listingText, parseListing, type RepoFile } from './download/repo-file.js';
import type { PartFile, RepoStore, StreamHash } from './download/store.js';

/** A `FileSystemDirectoryHandle`. */
export interface OpfsFolder {
  readonly name: string;
  getDirectoryHandle(name: string, options?: { readonly create?: boolean }): Promise<OpfsFolder>;
  getFileHandle(name: string, options?: { readonly create?: boolean }): Promise<OpfsFile>;
  removeEntry(name: string, options?: { readonly recursive?: boolean }): Promise<void>;
  keys(): AsyncIterable<string>;
}

/** A `FileSystemFileHandle`, as workers have it. */
export interface OpfsFile {
  getFile(): Promise<Blob>;
  createSyncAccessHandle(): Promise<SyncAccess>;
  move(name: string): Promise<void>;
}

interface SyncAccess {
  getSize(): number;
  read(target: Uint8Array, options: { readonly at: number }): number;
  write(bytes: Uint8Array, options: { readonly at: number }): number;
  truncate(size: number): void;
  flush(): void;
  close(): void;
}

const incompleteSuffix = '.incomplete';

export class OpfsStore implements RepoStore {
  readonly #folder: OpfsFolder;

  constructor(folder: OpfsFolder) {
    this.#folder = folder;
  }

  createHash(algorithm: 'sha256' | 'sha1'): StreamHash {
    const hash = (algorithm === 'sha256' ? sha256 : sha1).create();
    return { update: (bytes) => void hash.update(bytes), digest: () => bytesToHex(hash.digest()) };
  }

  async readRef(revision: string): Promise<string | undefined> {
    if (isCommit(revision)) return revision;
    const commit = await this.#read('refs', encodeURIComponent(revision));
    return isCommit(commit) ? commit : undefined;
  }

  /** Records the commit, and removes what no revision needs anymore. */
  async writeRef(revision: string, commit: string): Promise<void> {
    await this.#write('refs', encodeURIComponent(revision), commit);
    const needed = new Set<string>();
    const commits = new Set<string | undefined>();
    for (const name of await this.#names('refs')) commits.add(await this.#read('refs', name));
    for (const name of await this.#names('listings')) {
      if (!commits.has(name.replace(/\.json$/, ''))) await this.#remove('listings', name);
      else for (const { etag } of parseListing((await this.#read('listings', name)) ?? '') ?? []) needed.add(etag);
    }
    for (const name of await this.#names('blobs')) {
      if (!needed.has(name.replace(incompleteSuffix, ''))) await this.#remove('blobs', name);
    }
  }

  async readListing(commit: string): Promise<readonly RepoFile[] | undefined> {
    return parseListing((await this.#read('listings', `${commit}.json`)) ?? '');
  }

  writeListing(commit: string, files: readonly RepoFile[]): Promise<void> {
    return this.#write('listings', `${commit}.json`, listingText(files));
  }

  async checkSpace(files: readonly RepoFile[]): Promise<void> {
    let needed = 0;
    for (const { etag, sizeBytes } of files) {
      if ((await this.#blob(etag))?.size === sizeBytes) continue;
      needed += sizeBytes - ((await this.#blob(`${etag}${incompleteSuffix}`))?.size ?? 0);
    }
    const { quota = Infinity, usage = 0 } = await storageOfSite().estimate();
    if (needed <= quota - usage) return;
    throw new CapacityError({ resource: 'storage of this site', needed, available: quota - usage, unit: 'bytes' });
  }

  async openPart({ path, etag, sizeBytes }: RepoFile): Promise<PartFile | undefined> {
    if ((await this.#blob(etag))?.size === sizeBytes) return undefined;
    return inStorage(path, async () => {
      const folder = await this.#folder.getDirectoryHandle('blobs', { create: true });
      const file = await folder.getFileHandle(`${etag}${incompleteSuffix}`, { create: true });
      return new OpfsPart(await file.createSyncAccessHandle(), file, folder, etag);
    });
  }

  /** A commit consists of its listing. */
  async add(): Promise<void> {}

  async sizeOf(_commit: string, { etag }: RepoFile): Promise<number | undefined> {
    return (await this.#blob(etag))?.size;
  }

  async names(): Promise<readonly string[]> {
    return [];
  }

  /** The content of a complete file. */
  blobOf({ path, etag }: RepoFile): Promise<Blob> {
    return inStorage(path, async () => {
      const folder = await this.#folder.getDirectoryHandle('blobs');
      return (await folder.getFileHandle(etag)).getFile();
    });
  }

  /** Bytes of complete and of incomplete files, and whether a revision is complete. */
  async usage(): Promise<{
    readonly sizeBytes: number;
    readonly incompleteBytes: number;
    readonly isComplete: boolean;
  }> {
    let [sizeBytes, incompleteBytes] = [0, 0];
    for (const name of await this.#names('blobs')) {
      const size = (await this.#blob(name))?.size ?? 0; // removed meanwhile
      if (name.endsWith(incompleteSuffix)) incompleteBytes += size;
      else sizeBytes += size;
    }
    return { sizeBytes, incompleteBytes, isComplete: (await this.#names('refs')).length > 0 };
  }

  #blob(name: string): Promise<Blob | undefined> {
    return this.#file('blobs', name);
  }

  async #file(folder: string, name: string): Promise<Blob | undefined> {
    try {
      const handle = await this.#folder.getDirectoryHandle(folder);
      return await (await handle.getFileHandle(name)).getFile();
    } catch {
      return undefined;
    }
  }

  async #read(folder: string, name: string): Promise<string | undefined> {
    return (await this.#file(folder, name))?.text();
  }

  /** Writes a whole text, which appears under its name when it is complete. */
  #write(folderName: string, name: string, text: string): Promise<void> {
    return inStorage(name, async () => {
      const folder = await this.#folder.getDirectoryHandle(folderName, { create: true });
      const file = await folder.getFileHandle(`${name}${incompleteSuffix}`, { create: true });
      const part = new OpfsPart(await file.createSyncAccessHandle(), file, folder, name);
      try {
        await part.clear();
        await part.write(new TextEncoder().encode(text), 0);
        await part.complete();
      } finally {
        await part.close();
      }
    });
  }

  async #names(folder: string): Promise<string[]> {
    const names: string[] = [];
    const handle = await this.#folder.getDirectoryHandle(folder).catch(() => undefined);
    if (handle !== undefined) for await (const name of handle.keys()) names.push(name);
    return names;
  }

  #remove(folder: string, name: string): Promise<void> {
    return inStorage(name, async () => (await this.#folder.getDirectoryHandle(folder)).removeEntry(name));
  }
}

class OpfsPart implements PartFile {
  readonly #access: SyncAccess;
  readonly #file: OpfsFile;
  readonly #folder: OpfsFolder;
  /** Name of the complete file. */
  readonly #name: string;

  constructor(access: SyncAccess, file: OpfsFile, folder: OpfsFolder, name: string) {
    this.#access = access;
    this.#file = file;
    this.#folder = folder;
    this.#name = name;
  }

  size(): Promise<number> {
    return this.#do(() => this.#access.getSize());
  }

  read(target: Uint8Array, position: number): Promise<number> {
    return this.#do(() => this.#access.read(target, { at: position }));
  }

  write(bytes: Uint8Array, position: number): Promise<void> {
    return this.#do(() => {
      for (let written = 0; written < bytes.byteLength;) {
        written += this.#access.write(bytes.subarray(written), { at: position + written });
      }
    });
  }

  clear(): Promise<void> {
    return this.#do(() => this.#access.truncate(0));
  }

  complete(): Promise<void> {
    return this.#do(async () => {
      this.#access.flush();
      this.#access.close();
      await this.#file.move(this.#name);
    });
  }

  discard(): Promise<void> {
    return this.#do(async () => {
      this.#access.close();
      await this.#folder.removeEntry(`${this.#name}${incompleteSuffix}`);
    });
  }

  /** May be called again. */
  async close(): Promise<void> {
    this.#access.close();
  }

  #do<T>(action: () => T | Promise<T>): Promise<T> {
    return inStorage(this.#name, async () => action());
  }
}

/** The storage API of workers, which Node's types lack. */
interface SiteStorage {
  estimate(): Promise<{ readonly quota?: number; readonly usage?: number }>;
}

function storageOfSite(): SiteStorage {
  return (globalThis as unknown as { readonly navigator: { readonly storage: SiteStorage } }).navigator.storage;
}

const storageReasons: Readonly<Record<string, string>> = {
  QuotaExceededError: 'the site may not store more',
  NoModificationAllowedError: 'another tab is downloading it',
};

async function inStorage<T>(source: string, action: () => Promise<T>): Promise<T> {
  try {
    return await action();
  } catch (cause) {
    if (!(cause instanceof DOMException)) throw cause;
    const message = storageReasons[cause.name] ?? cause.message;
    throw new HubError({ source, reason: 'disk', message: `${message} (${cause.name})` }, { cause });
  }
}
