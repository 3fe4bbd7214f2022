/** Downloads the selected files of a repository into a cache, or finds them there. */
import { ArgumentError, type OptionNames } from '@winnow/tensor';
import { isSafeFileName } from '../file-name.js';
import { groupGgufFiles, isMmproj, selectFiles, type FileSelection } from '../select-files.js';
import { HubClient } from './client.js';
import { HubError } from './error.js';
import { isCommit, type RepoFile } from './repo-file.js';
import type { RepoStore } from './store.js';
import { transfer } from './transfer.js';

/** Progress of a download. */
export interface DownloadProgress {
  /** The file that is being downloaded or was found in the cache. */
  readonly file: string;
  readonly loadedBytes: number;
  readonly totalBytes: number;
  /** The same for all files of the call. */
  readonly allLoadedBytes: number;
  readonly allTotalBytes: number;
}

/** Options of a download in every host. */
export interface DownloadOptions extends FileSelection {
  /** `org/name`. */
  readonly repo: string;
  /** Branch, tag or commit. Default `main`. */
  readonly revision?: string;
  /** Default: the global `fetch`. */
  readonly fetch?: typeof fetch;
  /** Aborts the download; the next call resumes it. */
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: DownloadProgress) => void;
}

export const downloadNames: OptionNames<DownloadOptions> = {
  repo: true,
  revision: true,
  files: true,
  ignore: true,
  gguf: true,
  mmproj: true,
  fetch: true,
  signal: true,
  onProgress: true,
};

/** A checked download. */
export interface Download {
  readonly options: DownloadOptions;
  readonly revision: string;
  /** Without a trailing slash. */
  readonly endpoint: string;
  readonly accessToken: string | undefined;
  readonly store: RepoStore;
  /** Name of the cache in messages. */
  readonly cacheName: string;
  /** How to use the cache when the hub cannot be reached. */
  readonly offlineHint: string;
}

/** The selected files of a commit, all of them complete. */
export interface Snapshot {
  readonly commit: string;
  readonly files: readonly string[];
  /** The first file of the GGUF model, when exactly one is among `files`. */
  readonly gguf: string | undefined;
}

export const publicEndpoint = 'https://huggingface.co';

/** @throws {ArgumentError} for a malformed name, revision or endpoint */
export function checkAddress({ repo, revision = 'main' }: DownloadOptions, endpoint: string): void {
  const refuse = (argument: string, expected: string, actual: string): ArgumentError =>
    new ArgumentError({ argument, expected, actual });
  if (!/^([\w.-]{1,96}\/)?[\w.-]{1,96}$/.test(repo) || /\.\.|--|(^|\/)\.|\.git$/.test(repo)) {
    throw refuse('repo', 'org/name', JSON.stringify(repo));
  }
  if (!isSafeFileName(revision)) throw refuse('revision', 'a branch, tag or commit', JSON.stringify(revision));
  if (!URL.canParse(endpoint) || !/^https?:/.test(endpoint)) throw refuse('endpoint', 'an http(s) URL', endpoint);
}

/**
 * Downloads what is missing. The commit of the revision is recorded last, so that the cache never names a commit with
 * missing files.
 */
export async function downloadFiles(download: Download): Promise<Snapshot> {
  const { options, revision, store, endpoint, accessToken, offlineHint } = download;
  const { repo, signal } = options;
  signal?.throwIfAborted();
  const client = new HubClient({ repo, endpoint, accessToken, fetch: options.fetch ?? fetch, signal, offlineHint });
  const cachedListing = isCommit(revision) ? await store.readListing(revision) : undefined;
  const commit = cachedListing === undefined ? await client.commitOf(revision) : revision;
  const listing = cachedListing ?? (await client.files(commit));
  const selected = selectOf(listing, options);
  await store.writeListing(commit, listing);
  await store.checkSpace(selected);
  const allTotalBytes = selected.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  let doneBytes = 0;
  for (const file of selected) {
    const base = doneBytes;
    await transfer({
      file,
      store,
      openContent: (byteOffset) => client.open(commit, file, byteOffset),
      signal,
      onProgress: (loadedBytes) =>
        options.onProgress?.({
          file: file.path,
          loadedBytes,
          totalBytes: file.sizeBytes,
          allLoadedBytes: base + loadedBytes,
          allTotalBytes,
        }),
    });
    await store.add(commit, file);
    doneBytes += file.sizeBytes;
  }
  await store.writeRef(revision, commit);
  return snapshotOf(
    commit,
    selected.map(({ path }) => path),
  );
}

/** Finds the files in the cache, without requests. @throws {HubError} `not-cached`, with the files that are missing */
export async function cachedFiles({ options, revision, store, cacheName }: Download): Promise<Snapshot> {
  const missing = (message: string, files: readonly string[] = []): HubError =>
    new HubError({ source: options.repo, reason: 'not-cached', files, message: `${message} (offline, ${cacheName})` });
  const commit = await store.readRef(revision);
  if (commit === undefined) throw missing(`revision "${revision}" was never downloaded`);
  const listing = await store.readListing(commit);
  if (listing === undefined) {
    const names = await store.names(commit);
    if (names.length === 0) throw missing(`revision "${revision}" was never downloaded`);
    return snapshotOf(commit, selectFiles(names, options));
  }
  const selected: RepoFile[] = [];
  const absent: string[] = [];
  for (const file of selectOf(listing, options)) {
    const isThere = (await store.sizeOf(commit, file)) === file.sizeBytes;
    // a model that was downloaded without its image encoder still takes texts
    if (!isThere && options.mmproj === true && isMmproj(file.path)) continue;
    selected.push(file);
    if (!isThere) absent.push(file.path);
  }
  if (absent.length > 0) {
    throw missing(`${absent.length} of ${selected.length} files are missing: ${absent.slice(0, 5).join(', ')}`, absent);
  }
  return snapshotOf(
    commit,
    selected.map(({ path }) => path),
  );
}

function selectOf(listing: readonly RepoFile[], options: FileSelection): RepoFile[] {
  const paths = listing.map(({ path }) => path);
  const names = new Set(selectFiles(paths, options));
  return listing.filter(({ path }) => names.has(path));
}

function snapshotOf(commit: string, files: readonly string[]): Snapshot {
  const [group, ...others] = groupGgufFiles(files);
  return { commit, files, gguf: others.length > 0 ? undefined : group?.name };
}
