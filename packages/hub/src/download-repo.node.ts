/** Downloads a repository by name into the cache that the Hugging Face tools share. */
import { join, resolve } from 'node:path';
import { getHFHubCachePath } from '@huggingface/hub';
import { checkOptions, type OptionNames } from '@winnow/tensor';
import {
  cachedFiles,
  checkAddress,
  downloadFiles,
  downloadNames,
  publicEndpoint,
  type DownloadOptions,
} from './download/download.js';
import { RepoCache } from './repo-cache.node.js';

/** Options of `downloadRepo`. */
export interface DownloadRepoOptions extends DownloadOptions {
  /** Default: `HF_HUB_CACHE`, `HF_HOME/hub`, or `~/.cache/huggingface/hub`, as in all Hugging Face tools. */
  readonly cacheDir?: string;
  /** Default: `HF_ENDPOINT`, or the public hub. */
  readonly endpoint?: string;
  /** Default: `HF_TOKEN`, unless `endpoint` is given. Sent to the endpoint only, not to redirect targets. */
  readonly accessToken?: string;
  /** `true` uses only the cache and sends no requests. Default: whether `HF_HUB_OFFLINE` is set. */
  readonly offline?: boolean;
}

const optionNames: OptionNames<DownloadRepoOptions> = {
  ...downloadNames,
  cacheDir: true,
  endpoint: true,
  accessToken: true,
  offline: true,
};

/** A downloaded repository. */
export interface DownloadedRepo {
  /** Folder of the snapshot, with the files under their repository names. */
  readonly path: string;
  readonly commit: string;
  /** The selected files, all of them complete. The folder may contain others from earlier calls. */
  readonly files: readonly string[];
  /** The GGUF file to open, when exactly one GGUF model is among `files`. */
  readonly ggufFile: string | undefined;
}

/**
 * Downloads the selected files that are missing (see `FileSelection` for the default) and returns their location.
 * A file becomes visible only when it is complete and its size and hash match; an interrupted download resumes where it
 * stopped. The revision's commit is recorded last, so that the cache never names a commit with missing files.
 * @throws {HubError} (an `IoError`) with a `reason`
 * @throws {CapacityError} when the disk has too little space for the missing files, before the transfer starts
 * @throws {ArgumentError} for a malformed name or revision, or a selection that matches nothing or is ambiguous
 * @throws the signal's reason, when it fires
 */
export async function downloadRepo(options: DownloadRepoOptions): Promise<DownloadedRepo> {
  checkOptions(options, optionNames);
  const endpoint = (options.endpoint ?? process.env['HF_ENDPOINT'] ?? publicEndpoint).replace(/\/+$/, '');
  checkAddress(options, endpoint);
  const cacheDir = resolve(options.cacheDir ?? getHFHubCachePath());
  const store = new RepoCache(cacheDir, options.repo);
  const download = {
    options,
    revision: options.revision ?? 'main',
    endpoint,
    accessToken: options.accessToken ?? (options.endpoint === undefined ? process.env['HF_TOKEN'] : undefined),
    store,
    cacheName: `cache ${cacheDir}`,
    offlineHint: 'offline: true or HF_HUB_OFFLINE=1 uses the cache',
  };
  options.signal?.throwIfAborted();
  const isOffline = options.offline ?? isSet(process.env['HF_HUB_OFFLINE']);
  const { commit, files, gguf } = await (isOffline ? cachedFiles(download) : downloadFiles(download));
  const path = store.snapshotPath(commit);
  return { path, commit, files, ggufFile: gguf === undefined ? undefined : join(path, gguf) };
}

function isSet(value: string | undefined): boolean {
  return value !== undefined && ['1', 'on', 'yes', 'true'].includes(value.toLowerCase());
}
