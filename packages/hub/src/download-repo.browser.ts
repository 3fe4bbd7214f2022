/** Downloads a repository by name into the origin private file system, in a worker. */
import { checkOptions, type OptionNames } from '@winnow/tensor';
import {
  cachedFiles,
  checkAddress,
  downloadFiles,
  downloadNames,
  publicEndpoint,
  type DownloadOptions,
} from './download/download.js';
import { OpfsStore, type OpfsFolder } from './opfs-store.browser.js';

/** Options of `downloadRepo` in browsers. */
export interface DownloadRepoOptions extends DownloadOptions {
  /** A `FileSystemDirectoryHandle` of the origin private file system, for this repository alone. */
  readonly folder: OpfsFolder;
  /** Default: the public hub. */
  readonly endpoint?: string;
  /** Sent to the endpoint only, not to redirect targets. */
  readonly accessToken?: string;
  /** `true` uses only the folder and sends no requests. Default: false. */
  readonly offline?: boolean;
}

const optionNames: OptionNames<DownloadRepoOptions> = {
  ...downloadNames,
  folder: true,
  endpoint: true,
  accessToken: true,
  offline: true,
};

/** A downloaded repository. */
export interface DownloadedRepo {
  readonly commit: string;
  /** The selected files by name, all of them complete. */
  readonly files: ReadonlyMap<string, Blob>;
  /** The GGUF file to open, when exactly one GGUF model is among `files`. */
  readonly ggufFile: string | undefined;
}

/** What a folder contains. */
export interface DownloadedBytes {
  /** Bytes of complete files. */
  readonly sizeBytes: number;
  /** Bytes of files whose download has not finished. */
  readonly incompleteBytes: number;
  /** Whether all selected files of a revision are complete, so that `offline` finds them. */
  readonly isComplete: boolean;
}

/**
 * Downloads the selected files that are missing (see `FileSelection` for the default), with the rules of Node's
 * `downloadRepo`: a file is complete only when its size and hash match, an interrupted download resumes where it
 * stopped, and the revision's commit is recorded last. Files of earlier commits are removed then. Only workers can
 * write these files.
 * @throws {HubError} (an `IoError`) with a `reason`
 * @throws {CapacityError} when the site may not store the missing files, before the transfer starts
 * @throws {ArgumentError} for a malformed name or revision, or a selection that matches nothing or is ambiguous
 * @throws the signal's reason, when it fires
 */
export async function downloadRepo(options: DownloadRepoOptions): Promise<DownloadedRepo> {
  checkOptions(options, optionNames);
  const endpoint = (options.endpoint ?? publicEndpoint).replace(/\/+$/, '');
  checkAddress(options, endpoint);
  const { folder, accessToken, offline = false, revision = 'main', signal } = options;
  const store = new OpfsStore(folder);
  const cacheName = `folder ${folder.name}`;
  const download = {
    options,
    revision,
    endpoint,
    accessToken,
    store,
    cacheName,
    offlineHint: 'offline: true uses the folder',
  };
  signal?.throwIfAborted();
  const { commit, files, gguf } = await (offline ? cachedFiles(download) : downloadFiles(download));
  const listed = (await store.readListing(commit)) ?? [];
  const blobs = new Map<string, Blob>();
  for (const file of listed) if (files.includes(file.path)) blobs.set(file.path, await store.blobOf(file));
  return { commit, files: blobs, ggufFile: gguf };
}

/** How much of a repository is in a folder that `downloadRepo` was given. */
export function downloadedBytes(folder: OpfsFolder): Promise<DownloadedBytes> {
  return new OpfsStore(folder).usage();
}
