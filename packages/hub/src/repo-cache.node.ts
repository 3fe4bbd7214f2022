/**
 * One repository in the cache folder that the Hugging Face tools share:
 *
 *   models--org--name/blobs/<etag>            content, complete and verified; `<etag>.incomplete` during the download
 *   models--org--name/snapshots/<commit>/...  links to blobs, under the names of the repository
 *   models--org--name/refs/<revision>         the commit of a branch or tag
 *   models--org--name/.winnow/<commit>.json   Winnow's own: the files of the commit, to detect missing ones offline
 */
import { isRecord } from '@winnow/tensor';
import { copyFile, readFile, realpath, rename, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { makeFolder, partPath } from '@winnow/bytes/node';
import { getRepoFolderName } from '@huggingface/hub';
import { isSafeFileName } from './file-name.js';
import { onDisk } from './hub/error.node.js';

/** A file as the hub lists it. */
export interface RepoFile {
  readonly path: string;
  readonly sizeBytes: number;
  /** Name of its blob: sha256 of the content for large files, git's sha1 for others. */
  readonly etag: string;
  /** How `etag` is computed from the content; `undefined` when it is not. */
  readonly hash: 'sha256' | 'git-sha1' | undefined;
}

const commitPattern = /^[0-9a-f]{40}$/;

export function isCommit(revision: string): boolean {
  return commitPattern.test(revision);
}

export class RepoCache {
  /** Folder of the repository. */
  readonly path: string;

  constructor(cacheDir: string, repo: string) {
    this.path = join(cacheDir, getRepoFolderName({ type: 'model', name: repo }));
  }

  blobPath(etag: string): string {
    return join(this.path, 'blobs', etag);
  }

  snapshotPath(commit: string): string {
    return join(this.path, 'snapshots', commit);
  }

  /** The commit that a branch or tag had when it was last downloaded. */
  async readRef(revision: string): Promise<string | undefined> {
    if (isCommit(revision)) return revision;
    const text = await readIfThere(join(this.path, 'refs', revision));
    const commit = text?.trim();
    return commit !== undefined && isCommit(commit) ? commit : undefined;
  }

  async writeRef(revision: string, commit: string): Promise<void> {
    const refs = join(this.path, 'refs');
    if (isCommit(revision)) await onDisk(refs, () => makeFolder(refs));
    else await writeWhole(join(refs, revision), commit);
  }

  /** The files of a commit, as recorded by an earlier download. */
  async readListing(commit: string): Promise<RepoFile[] | undefined> {
    const text = await readIfThere(this.#listingPath(commit));
    if (text === undefined) return undefined;
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch {
      return undefined;
    }
    const files = isRecord(value) && value['version'] === 1 ? value['files'] : undefined;
    return Array.isArray(files) && files.every(isRepoFile) ? files : undefined;
  }

  async writeListing(commit: string, files: readonly RepoFile[]): Promise<void> {
    await writeWhole(this.#listingPath(commit), `${JSON.stringify({ version: 1, files })}\n`);
  }

  /** Size of a file of a snapshot, `undefined` when it is missing or its link is dangling. */
  async snapshotFileSize(commit: string, path: string): Promise<number | undefined> {
    return sizeIfFile(join(this.snapshotPath(commit), path));
  }

  /** Adds a complete blob to a snapshot atomically: as a relative link, or as a copy where links are not supported. */
  async link(commit: string, file: RepoFile): Promise<void> {
    const blob = this.blobPath(file.etag);
    const target = join(this.snapshotPath(commit), file.path);
    await onDisk(target, async () => {
      const existing = await realpath(target).catch(() => undefined);
      if (existing !== undefined && existing === (await realpath(blob))) return;
      await makeFolder(dirname(target));
      const temporary = await partPath(target);
      try {
        try {
          await symlink(relative(dirname(target), blob), temporary);
        } catch {
          await copyFile(blob, temporary);
        }
        await rename(temporary, target);
      } catch (error) {
        await rm(temporary, { force: true }).catch(() => undefined);
        throw error;
      }
    });
  }

  #listingPath(commit: string): string {
    return join(this.path, '.winnow', `${commit}.json`);
  }
}

/** Size of a regular file (links are followed), `undefined` for anything else. */
export async function sizeIfFile(path: string): Promise<number | undefined> {
  const found = await stat(path).catch(() => undefined);
  return found?.isFile() === true ? found.size : undefined;
}

function isRepoFile(value: unknown): value is RepoFile {
  if (!isRecord(value)) return false;
  const { path, sizeBytes, etag, hash } = value;
  return (
    typeof path === 'string' &&
    isSafeFileName(path) &&
    Number.isSafeInteger(sizeBytes) &&
    typeof etag === 'string' &&
    /^[0-9a-f]{40,64}$/.test(etag) &&
    (hash === undefined || hash === 'sha256' || hash === 'git-sha1')
  );
}

async function readIfThere(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8');
  } catch {
    return undefined;
  }
}

async function writeWhole(path: string, text: string): Promise<void> {
  await onDisk(path, async () => {
    await makeFolder(dirname(path));
    const temporary = await partPath(path);
    try {
      await writeFile(temporary, text);
      await rename(temporary, path);
    } catch (error) {
      await rm(temporary, { force: true }).catch(() => undefined);
      throw error;
    }
  });
}
