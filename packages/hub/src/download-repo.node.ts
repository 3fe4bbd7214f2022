/** Downloads a repository by name into the cache that the Hugging Face tools share. */
import { statfs } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { makeFolder } from '@winnow/bytes/node';
import { downloadFile, getHFHubCachePath, listFiles, modelInfo, type ListFileEntry } from '@huggingface/hub';
import { ArgumentError, CapacityError, checkOptions, IoError, type OptionNames } from '@winnow/tensor';
import { isSafeFileName } from './file-name.js';
import { HubError, onDisk } from './hub/error.node.js';
import { createAnswerFetch, createHubFetch, createRangeFetch, messageOf } from './hub/fetch.node.js';
import { MAX_FILES } from './limits.js';
import { localFolder } from './local-folder.node.js';
import { isCommit, RepoCache, sizeIfFile, type RepoFile } from './repo-cache.node.js';
import { groupGgufFiles, selectFiles, type FileSelection } from './select-files.js';
import { transfer } from './transfer.node.js';

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

/** Options of `downloadRepo`. */
export interface DownloadRepoOptions extends FileSelection {
  /** `org/name`. */
  readonly repo: string;
  /** Branch, tag or commit. Default `main`. */
  readonly revision?: string;
  /** Default: `HF_HUB_CACHE`, `HF_HOME/hub`, or `~/.cache/huggingface/hub`, as in all Hugging Face tools. */
  readonly cacheDir?: string;
  /** Default: `HF_ENDPOINT`, or the public hub. */
  readonly endpoint?: string;
  /** Default: `HF_TOKEN`, unless `endpoint` is given. Sent to the endpoint only, not to redirect targets. */
  readonly accessToken?: string;
  /** Default: the global `fetch`. */
  readonly fetch?: typeof fetch;
  /** `true` uses only the cache and sends no requests. Default: whether `HF_HUB_OFFLINE` is set. */
  readonly offline?: boolean;
  /** Aborts the download; the next call resumes it. */
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: DownloadProgress) => void;
}

const downloadNames: OptionNames<DownloadRepoOptions> = {
  repo: true,
  revision: true,
  files: true,
  ignore: true,
  gguf: true,
  cacheDir: true,
  endpoint: true,
  accessToken: true,
  fetch: true,
  offline: true,
  signal: true,
  onProgress: true,
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

interface Context {
  readonly options: DownloadRepoOptions;
  readonly repo: string;
  readonly revision: string;
  readonly cache: RepoCache;
  readonly cacheDir: string;
  readonly endpoint: string;
}

const publicEndpoint = 'https://huggingface.co';

/** The hub returns a thousand files per page; this bounds a server whose listing never ends. */
const maxListRequests = 1000;

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
  checkOptions(options, downloadNames);
  const context = contextOf(options);
  const { cache, repo, revision } = context;
  options.signal?.throwIfAborted();
  if (options.offline ?? isSet(process.env['HF_HUB_OFFLINE'])) return fromCache(context);

  const request = createHubFetch({
    repo,
    endpoint: context.endpoint,
    accessToken: options.accessToken ?? (options.endpoint === undefined ? process.env['HF_TOKEN'] : undefined),
    fetch: options.fetch ?? fetch,
    signal: options.signal,
  });
  const cachedListing = isCommit(revision) ? await cache.readListing(revision) : undefined;
  const commit = cachedListing === undefined ? await resolveCommit(context, request) : revision;
  const listing = cachedListing ?? (await listRepo(context, request, commit));
  const selected = selectOf(listing, options);
  await onDisk(context.cacheDir, () => makeFolder(cache.path));
  await cache.writeListing(commit, listing);
  await checkSpace(context, selected);

  const allTotalBytes = selected.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  let doneBytes = 0;
  for (const file of selected) {
    const base = doneBytes;
    await transfer({
      file,
      blobPath: cache.blobPath(file.etag),
      openContent: (byteOffset) => openContent(context, request, commit, file, byteOffset),
      signal: options.signal,
      onProgress: (loadedBytes) =>
        options.onProgress?.({
          file: file.path,
          loadedBytes,
          totalBytes: file.sizeBytes,
          allLoadedBytes: base + loadedBytes,
          allTotalBytes,
        }),
    });
    await cache.link(commit, file);
    doneBytes += file.sizeBytes;
  }
  await cache.writeRef(revision, commit);
  return resultOf(
    context,
    commit,
    selected.map(({ path }) => path),
  );
}

function contextOf(options: DownloadRepoOptions): Context {
  const { repo } = options;
  if (!/^([\w.-]{1,96}\/)?[\w.-]{1,96}$/.test(repo) || /\.\.|--|(^|\/)\.|\.git$/.test(repo)) {
    throw new ArgumentError({ argument: 'repo', expected: 'org/name', actual: JSON.stringify(repo) });
  }
  const revision = options.revision ?? 'main';
  if (!isSafeFileName(revision)) {
    throw new ArgumentError({
      argument: 'revision',
      expected: 'a branch, tag or commit',
      actual: JSON.stringify(revision),
    });
  }
  const endpoint = (options.endpoint ?? process.env['HF_ENDPOINT'] ?? publicEndpoint).replace(/\/+$/, '');
  if (!URL.canParse(endpoint) || !/^https?:/.test(endpoint)) {
    throw new ArgumentError({ argument: 'endpoint', expected: 'an http(s) URL', actual: endpoint });
  }
  const cacheDir = resolve(options.cacheDir ?? getHFHubCachePath());
  return { options, repo, revision, endpoint, cacheDir, cache: new RepoCache(cacheDir, repo) };
}

async function resolveCommit(context: Context, request: typeof fetch): Promise<string> {
  const { repo, revision, endpoint } = context;
  const { sha } = await answer(context, () =>
    modelInfo({
      ...{ name: repo, revision, hubUrl: endpoint, additionalFields: ['sha'] },
      fetch: createAnswerFetch(request, repo),
    }),
  );
  if (typeof sha !== 'string' || !isCommit(sha)) {
    throw new HubError({ source: repo, reason: 'server', message: 'the hub returned no commit for the revision' });
  }
  return sha;
}

async function listRepo(context: Context, request: typeof fetch, commit: string): Promise<RepoFile[]> {
  const { repo, endpoint } = context;
  let numRequests = 0;
  const bounded = createAnswerFetch(request, repo);
  const counted: typeof fetch = (input, init) => {
    if (++numRequests > maxListRequests) {
      throw new HubError({ source: repo, reason: 'server', message: 'the file listing does not end' });
    }
    return bounded(input, init);
  };
  return answer(context, async () => {
    const files: RepoFile[] = [];
    for await (const entry of listFiles({
      repo: { type: 'model', name: repo },
      revision: commit,
      recursive: true,
      hubUrl: endpoint,
      fetch: counted,
    })) {
      // a name that is invalid in a folder (or escapes it) is treated as missing
      if (entry.type === 'file' && isSafeFileName(entry.path)) files.push(repoFileOf(repo, entry));
      if (files.length > MAX_FILES) {
        throw new HubError({ source: repo, reason: 'server', message: `more than ${MAX_FILES} files` });
      }
    }
    return files;
  });
}

/** Errors of the library about a malformed response become `HubError`s; errors of our `fetch` pass unchanged. */
async function answer<T>({ repo, options }: Context, action: () => Promise<T>): Promise<T> {
  try {
    return await action();
  } catch (cause) {
    options.signal?.throwIfAborted();
    if (cause instanceof IoError) throw cause;
    throw new HubError(
      { source: repo, reason: 'server', message: `malformed response: ${messageOf(cause)}` },
      { cause },
    );
  }
}

function repoFileOf(repo: string, entry: ListFileEntry): RepoFile {
  const { path, lfs, oid, xetHash } = entry;
  const sizeBytes = lfs?.size ?? entry.size;
  const etag = lfs?.oid ?? oid ?? xetHash;
  if (
    !Number.isSafeInteger(sizeBytes) ||
    sizeBytes < 0 ||
    typeof etag !== 'string' ||
    !/^([0-9a-f]{40}|[0-9a-f]{64})$/.test(etag)
  ) {
    const shown = JSON.stringify(entry).slice(0, 300);
    throw new HubError({ source: repo, reason: 'server', message: `malformed entry in the file listing: ${shown}` });
  }
  const hash = lfs !== undefined ? 'sha256' : xetHash === undefined ? 'git-sha1' : undefined;
  return { path, sizeBytes, etag, hash };
}

function selectOf(listing: readonly RepoFile[], options: DownloadRepoOptions): RepoFile[] {
  const names = new Set(
    selectFiles(
      listing.map(({ path }) => path),
      options,
    ),
  );
  return listing.filter(({ path }) => names.has(path));
}

async function checkSpace({ cacheDir, cache }: Context, files: readonly RepoFile[]): Promise<void> {
  let needed = 0;
  for (const { etag, sizeBytes } of files) {
    const blob = cache.blobPath(etag);
    if ((await sizeIfFile(blob)) !== sizeBytes) needed += sizeBytes - ((await sizeIfFile(`${blob}.incomplete`)) ?? 0);
  }
  const found = await statfs(cacheDir).catch(() => undefined);
  const available = found === undefined ? 0 : found.bavail * found.bsize;
  // some network file systems report no sizes
  if (found === undefined || found.blocks === 0 || needed <= available) return;
  throw new CapacityError({ resource: `disk of ${cacheDir}`, needed, available, unit: 'bytes' });
}

/** The content through the library's plain HTTP path: its xet protocol cannot be resumed across processes. */
async function openContent(
  { repo, endpoint }: Context,
  request: typeof fetch,
  commit: string,
  file: RepoFile,
  byteOffset: number,
): Promise<AsyncIterable<Uint8Array>> {
  let failure: unknown;
  const checked = createRangeFetch(request, { source: file.path, sizeBytes: file.sizeBytes });
  const blob = await downloadFile({
    repo: { type: 'model', name: repo },
    path: file.path,
    revision: commit,
    hubUrl: endpoint,
    xet: false,
    fetch: async (input, init) => {
      try {
        return await checked(input, init);
      } catch (error) {
        failure = error; // the library's stream preserves only the message
        throw error;
      }
    },
    downloadInfo: {
      size: file.sizeBytes,
      etag: file.etag,
      url: `${endpoint}/${repo}/resolve/${commit}/${file.path.split('/').map(encodeURIComponent).join('/')}`,
    },
  });
  if (blob === null) throw new HubError({ source: file.path, reason: 'not-found', message: 'no such file' });
  const stream = blob.slice(byteOffset, file.sizeBytes).stream();
  return (async function* () {
    try {
      yield* stream;
    } catch (error) {
      throw failure ?? error;
    }
  })();
}

async function fromCache(context: Context): Promise<DownloadedRepo> {
  const { repo, revision, cache, cacheDir, options } = context;
  const missing = (message: string, files: readonly string[] = []): HubError =>
    new HubError({ source: repo, reason: 'not-cached', files, message: `${message} (offline, cache ${cacheDir})` });
  const commit = await cache.readRef(revision);
  if (commit === undefined) throw missing(`revision "${revision}" was never downloaded`);
  const listing = await cache.readListing(commit);
  if (listing === undefined) {
    // created by another tool: the snapshot is the only source of information
    const names = await localFolder(cache.snapshotPath(commit))
      .list()
      .catch(() => []);
    if (names.length === 0) throw missing(`revision "${revision}" was never downloaded`);
    return resultOf(context, commit, selectFiles(names, options));
  }
  const selected = selectOf(listing, options);
  const absent: string[] = [];
  for (const { path, sizeBytes } of selected) {
    if ((await cache.snapshotFileSize(commit, path)) !== sizeBytes) absent.push(path);
  }
  if (absent.length > 0) {
    throw missing(`${absent.length} of ${selected.length} files are missing: ${absent.slice(0, 5).join(', ')}`, absent);
  }
  return resultOf(
    context,
    commit,
    selected.map(({ path }) => path),
  );
}

function resultOf({ cache }: Context, commit: string, files: readonly string[]): DownloadedRepo {
  const [group, ...others] = groupGgufFiles(files);
  return {
    path: cache.snapshotPath(commit),
    commit,
    files,
    ggufFile: group === undefined || others.length > 0 ? undefined : join(cache.snapshotPath(commit), group.name),
  };
}

function isSet(value: string | undefined): boolean {
  return value !== undefined && ['1', 'on', 'yes', 'true'].includes(value.toLowerCase());
}
