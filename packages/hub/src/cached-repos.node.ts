/** The models in the cache that the Hugging Face tools share: what is there, and removal. */
import { readdir, rm, stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { getHFHubCachePath, getRepoFolderName } from '@huggingface/hub';
import { checkOptions, type OptionNames } from '@winnow/tensor';
import { onDisk } from './download/disk-error.node.js';

export interface CacheOptions {
  /** Default: `HF_HUB_CACHE`, `HF_HOME/hub`, or `~/.cache/huggingface/hub`, as in all Hugging Face tools. */
  readonly cacheDir?: string;
}

const cacheOptionNames: OptionNames<CacheOptions> = { cacheDir: true };

/** A model repository in the cache. */
export interface CachedRepo {
  /** `org/name`. */
  readonly repo: string;
  /** Folder of the repository. */
  readonly path: string;
  /** Branches and tags, sorted. */
  readonly revisions: readonly string[];
  /** Bytes of all files, complete or not. */
  readonly sizeBytes: number;
  /** Bytes of files whose download has not finished. */
  readonly incompleteBytes: number;
}

const folderPattern = /^models--(.+)$/;

/**
 * Repositories of models in the cache, by name. A cache that does not exist is empty.
 * @throws {HubError} when the cache cannot be read
 */
export async function listCachedRepos(options: CacheOptions = {}): Promise<CachedRepo[]> {
  checkOptions(options, cacheOptionNames);
  const cacheDir = resolve(options.cacheDir ?? getHFHubCachePath());
  const names = (await namesIn(cacheDir)).filter((name) => folderPattern.test(name));
  return Promise.all(names.map((name) => cachedRepo(cacheDir, name)));
}

/**
 * Removes a repository with all of its revisions, for the other Hugging Face tools as well.
 * @returns what was there, or undefined
 * @throws {HubError} when it cannot be removed
 */
export async function removeCachedRepo(repo: string, options: CacheOptions = {}): Promise<CachedRepo | undefined> {
  const found = (await listCachedRepos(options)).find((cached) => cached.repo === repo);
  if (found === undefined) return undefined;
  await onDisk(found.path, () => rm(found.path, { recursive: true }));
  return found;
}

async function cachedRepo(cacheDir: string, folder: string): Promise<CachedRepo> {
  const path = join(cacheDir, folder);
  const blobs = join(path, 'blobs');
  let [sizeBytes, incompleteBytes] = [0, 0];
  for (const name of await namesIn(blobs)) {
    const size = (await stat(join(blobs, name)).catch(() => undefined))?.size ?? 0; // removed meanwhile
    sizeBytes += size;
    if (name.includes('.incomplete')) incompleteBytes += size;
  }
  const revisions = await namesIn(join(path, 'refs'));
  return { repo: repoOf(folder), path, revisions, sizeBytes, incompleteBytes };
}

/** `models--org--name` to `org/name`; a name without an organization has no second mark. */
function repoOf(folder: string): string {
  const [, name = ''] = folderPattern.exec(folder) ?? [];
  const repo = name.replace('--', '/');
  return getRepoFolderName({ type: 'model', name: repo }) === folder ? repo : name;
}

async function namesIn(folder: string): Promise<string[]> {
  const isThere = await stat(folder).then(
    () => true,
    (error: NodeJS.ErrnoException) => error.code !== 'ENOENT',
  );
  return isThere ? (await onDisk(folder, () => readdir(folder))).toSorted() : [];
}
