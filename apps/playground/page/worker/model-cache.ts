/**
 * Models of a hub in the origin private file system (OPFS): a folder per repository. A download that was interrupted
 * continues where it stopped, and a file appears under its name only when it is complete.
 */
import { blobFolder, selectFiles, type HubFiles } from '@winnow/hub';
import type { CachedModel, LoadProgress } from '../backend/contract.js';

interface HubSource {
  readonly address: string;
  readonly endpoint: string;
}

interface DownloadOptions {
  readonly signal: AbortSignal;
  readonly onProgress: (progress: LoadProgress) => void;
}

interface RemoteFile {
  readonly path: string;
  readonly size: number;
}

/** In workers of all browsers; the declarations of the DOM lack them. */
type FileHandle = FileSystemFileHandle & {
  move(name: string): Promise<void>;
  createSyncAccessHandle(): Promise<{
    getSize(): number;
    write(bytes: Uint8Array, options: { readonly at: number }): number;
    flush(): void;
    close(): void;
  }>;
};

const partSuffix = '.part';

async function cacheFolder(): Promise<FileSystemDirectoryHandle> {
  const root = await navigator.storage.getDirectory();
  return root.getDirectoryHandle('models', { create: true });
}

/** Names of folders and files have no slash. */
const folderName = encodeURIComponent;

/** The repository and the choice of a file in `owner/name:choice`. */
function parseAddress(address: string): { readonly repo: string; readonly gguf: string | undefined } {
  const match = /^(?:hf:)?([\w.-]+\/[\w.-]+)(?::([\w.-]+))?$/.exec(address.trim());
  if (match === null) {
    throw new Error(`expected an address such as owner/name or owner/name:q4_k_m, got "${address}"`);
  }
  const [, repo = '', gguf] = match;
  return { repo, gguf };
}

/** @throws {Error} when the address is not one, or a file cannot be downloaded and is not cached */
export async function openCached({ address, endpoint }: HubSource, options: DownloadOptions): Promise<Blob | HubFiles> {
  const { repo, gguf } = parseAddress(address);
  const cache = await cacheFolder();
  const folder = await cache.getDirectoryHandle(folderName(address.trim()), { create: true });
  const base = endpoint.endsWith('/') ? endpoint : `${endpoint}/`;
  const remote = await listRemote(new URL(`api/models/${repo}/tree/main?recursive=true`, base), options.signal);
  if (remote !== undefined) {
    const names = selectFiles(
      remote.map(({ path }) => path),
      gguf === undefined ? {} : { gguf },
    );
    const wanted = remote.filter(({ path }) => names.includes(path));
    await downloadAll(wanted, folder, (path) => new URL(`${repo}/resolve/main/${path}`, base), options);
  }
  return openFolder(folder, address);
}

/** Undefined without a network: what is cached has to do. */
async function listRemote(url: URL, signal: AbortSignal): Promise<readonly RemoteFile[] | undefined> {
  const response = await fetch(url, { signal }).catch((error: unknown) => {
    if (signal.aborted) throw error;
    return undefined;
  });
  if (response === undefined) return undefined;
  if (!response.ok) throw new Error(`${url.href}: the hub answered ${response.status}`);
  const entries = (await response.json()) as readonly (RemoteFile & { readonly type: string })[];
  return entries.filter(({ type }) => type === 'file').map(({ path, size }) => ({ path, size }));
}

async function downloadAll(
  files: readonly RemoteFile[],
  folder: FileSystemDirectoryHandle,
  urlOf: (path: string) => URL,
  { signal, onProgress }: DownloadOptions,
): Promise<void> {
  const totalBytes = files.reduce((sum, { size }) => sum + size, 0);
  let done = 0;
  for (const file of files) {
    const report = (bytes: number): void => onProgress({ what: 'download', loadedBytes: done + bytes, totalBytes });
    await download(file, folder, urlOf(file.path), signal, report);
    done += file.size;
    report(0);
  }
}

async function download(
  { path, size }: RemoteFile,
  folder: FileSystemDirectoryHandle,
  url: URL,
  signal: AbortSignal,
  report: (bytes: number) => void,
): Promise<void> {
  const name = folderName(path);
  const known = await folder.getFileHandle(name).catch(() => undefined);
  if (known !== undefined && (await known.getFile()).size === size) return;
  const handle = (await folder.getFileHandle(`${name}${partSuffix}`, { create: true })) as FileHandle;
  const access = await handle.createSyncAccessHandle();
  try {
    let at = access.getSize();
    if (at < size || size === 0)
      at = await fetchInto(url, at, signal, (bytes, offset) => {
        access.write(bytes, { at: offset });
        report(offset + bytes.length);
      });
    access.flush();
    if (at !== size) throw new Error(`${path}: expected ${size} bytes, got ${at}`);
  } finally {
    access.close();
  }
  await handle.move(name);
}

/** @returns the size of the file so far */
async function fetchInto(
  url: URL,
  begin: number,
  signal: AbortSignal,
  write: (bytes: Uint8Array, offset: number) => void,
): Promise<number> {
  const response = await fetch(url, { signal, headers: begin === 0 ? {} : { range: `bytes=${begin}-` } });
  if (!response.ok || response.body === null) throw new Error(`${url.href}: the hub answered ${response.status}`);
  // a server that ignores ranges sends the file from its beginning
  let at = response.status === 206 ? begin : 0;
  const reader = response.body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return at;
    write(value, at);
    at += value.length;
  }
}

async function filesOf(folder: FileSystemDirectoryHandle): Promise<Map<string, File>> {
  const files = new Map<string, File>();
  for await (const [name, handle] of folder.entries()) {
    if (handle.kind !== 'file' || name.endsWith(partSuffix)) continue;
    files.set(decodeURIComponent(name), await (handle as FileSystemFileHandle).getFile());
  }
  return files;
}

async function openFolder(folder: FileSystemDirectoryHandle, address: string): Promise<Blob | HubFiles> {
  const files = await filesOf(folder);
  const gguf = [...files.keys()].filter((name) => name.endsWith('.gguf')).sort();
  const [first] = gguf;
  if (first !== undefined && gguf.length === 1) return files.get(first) as File;
  if (files.size === 0) throw new Error(`${address} is not cached, and the hub does not answer`);
  return blobFolder(files, address);
}

export async function cachedModels(): Promise<readonly CachedModel[]> {
  const models: CachedModel[] = [];
  for await (const [name, handle] of (await cacheFolder()).entries()) {
    if (handle.kind !== 'directory') continue;
    const files = await filesOf(handle);
    const sizeBytes = [...files.values()].reduce((sum, { size }) => sum + size, 0);
    models.push({ name: decodeURIComponent(name), sizeBytes });
  }
  return models;
}

export async function removeCached(name: string): Promise<void> {
  await (await cacheFolder()).removeEntry(folderName(name), { recursive: true });
}
