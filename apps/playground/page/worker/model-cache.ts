/** Models of a hub in the origin private file system (OPFS): a folder per address. */
import { blobFolder, type HubFiles } from '@winnow/hub';
import { downloadedBytes, downloadRepo, HubError, type OpfsFolder } from '@winnow/hub/browser';
import type { CachedModel, LoadProgress } from '../backend/contract.js';

interface HubSource {
  readonly address: string;
  readonly endpoint: string;
}

interface DownloadOptions {
  readonly signal: AbortSignal;
  readonly onProgress: (progress: LoadProgress) => void;
}

async function cacheFolder(): Promise<FileSystemDirectoryHandle> {
  const root = await navigator.storage.getDirectory();
  return root.getDirectoryHandle('models', { create: true });
}

/** Names of folders have no slash. */
const folderName = encodeURIComponent;

/** The repository and the choice of a file in `owner/name:choice`. */
function parseAddress(address: string): { readonly repo: string; readonly gguf?: string } {
  const match = /^(?:hf:)?([\w.-]+\/[\w.-]+)(?::([\w.-]+))?$/.exec(address);
  if (match === null) {
    throw new Error(`expected an address such as owner/name or owner/name:q4_k_m, got "${address}"`);
  }
  const [, repo = '', gguf] = match;
  return gguf === undefined ? { repo } : { repo, gguf };
}

/**
 * Opens a model of a hub: the files of its newest commit, of which those that are not cached are downloaded; without a
 * network, the files that were downloaded last.
 * @throws {Error} when the address is not one
 * @throws {HubError} when a file cannot be downloaded and is not cached
 */
export async function openCached(source: HubSource, { signal, onProgress }: DownloadOptions): Promise<Blob | HubFiles> {
  const address = source.address.trim();
  const selection = parseAddress(address);
  const folder = await (await cacheFolder()).getDirectoryHandle(folderName(address), { create: true });
  const options = {
    ...selection,
    folder: folder as unknown as OpfsFolder,
    endpoint: source.endpoint,
    signal,
    onProgress: (now: { readonly allLoadedBytes: number; readonly allTotalBytes: number }) =>
      onProgress({ what: 'download', loadedBytes: now.allLoadedBytes, totalBytes: now.allTotalBytes }),
  };
  const { files, ggufFile } = await downloadRepo(options).catch(async (error: unknown) => {
    if (!(error instanceof HubError && error.reason === 'network')) throw error;
    return downloadRepo({ ...options, offline: true }).catch(() => Promise.reject(error));
  });
  const file = ggufFile === undefined ? undefined : files.get(ggufFile);
  return file !== undefined && files.size === 1 ? file : blobFolder(files, address);
}

export async function cachedModels(): Promise<readonly CachedModel[]> {
  const models: CachedModel[] = [];
  for await (const [name, handle] of (await cacheFolder()).entries()) {
    if (handle.kind !== 'directory') continue;
    const { isComplete, sizeBytes, incompleteBytes } = await downloadedBytes(handle as unknown as OpfsFolder);
    models.push({ name: decodeURIComponent(name), isComplete, sizeBytes: sizeBytes + incompleteBytes });
  }
  return models;
}

export async function removeCached(name: string): Promise<void> {
  await (await cacheFolder()).removeEntry(folderName(name), { recursive: true });
}
