/**
 * One repository in the cache folder that the Hugging Face tools share:
 *
 *   models--org--name/blobs/<etag>            content, complete and verified; `<etag>.incomplete` during the download
 *   models--org--name/snapshots/<commit>/...  links to blobs, under the names of the repository
 *   models--org--name/refs/<revision>         the commit of a branch or tag
 *   models--org--name/.winnow/<commit>.json   Winnow's own: the files of the commit, to detect missing ones offline
 */
import { createHash } from 'node:crypto';
import { copyFile, readFile, realpath, rename, rm, statfs, symlink, writeFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { makeFolder, partPath } from '@winnow/bytes/node';
import { getRepoFolderName } from '@huggingface/hub';
import { CapacityError } from '@winnow/tensor';
import { onDisk } from './download/disk-error.node.js';
import { isCommit, listingText, parseListing, type RepoFile } from './download/repo-file.js';
import type { PartFile, RepoStore, StreamHash } from './download/store.js';
import { localFolder } from './local-folder.node.js';
import { incompletePath, openPartFile, sizeIfFile } from './part-file.node.js';

export class RepoCache implements RepoStore {
  readonly #cacheDir: string;
  /** Folder of the repository. */
  readonly #path: string;

  constructor(cacheDir: string, repo: string) {
    this.#cacheDir = cacheDir;
    this.#path = join(cacheDir, getRepoFolderName({ type: 'model', name: repo }));
  }

  createHash(algorithm: 'sha256' | 'sha1'): StreamHash {
    const hash = createHash(algorithm);
    return { update: (bytes) => void hash.update(bytes), digest: () => hash.digest('hex') };
  }

  snapshotPath(commit: string): string {
    return join(this.#path, 'snapshots', commit);
  }

  /** The commit that a branch or tag had when it was last downloaded. */
  async readRef(revision: string): Promise<string | undefined> {
    if (isCommit(revision)) return revision;
    const text = await readIfThere(join(this.#path, 'refs', revision));
    const commit = text?.trim();
    return commit !== undefined && isCommit(commit) ? commit : undefined;
  }

  async writeRef(revision: string, commit: string): Promise<void> {
    const refs = join(this.#path, 'refs');
    if (isCommit(revision)) await onDisk(refs, () => makeFolder(refs));
    else await writeWhole(join(refs, revision), commit);
  }

  /** The files of a commit, as recorded by an earlier download. */
  async readListing(commit: string): Promise<RepoFile[] | undefined> {
    return parseListing((await readIfThere(this.#listingPath(commit))) ?? '');
  }

  async writeListing(commit: string, files: readonly RepoFile[]): Promise<void> {
    await writeWhole(this.#listingPath(commit), listingText(files));
  }

  async checkSpace(files: readonly RepoFile[]): Promise<void> {
    let needed = 0;
    for (const { etag, sizeBytes } of files) {
      const blob = this.#blobPath(etag);
      if ((await sizeIfFile(blob)) !== sizeBytes) needed += sizeBytes - ((await sizeIfFile(incompletePath(blob))) ?? 0);
    }
    const found = await statfs(this.#cacheDir).catch(() => undefined);
    const available = found === undefined ? 0 : found.bavail * found.bsize;
    // some network file systems report no sizes
    if (found === undefined || found.blocks === 0 || needed <= available) return;
    throw new CapacityError({ resource: `disk of ${this.#cacheDir}`, needed, available, unit: 'bytes' });
  }

  async openPart({ etag, sizeBytes }: RepoFile): Promise<PartFile | undefined> {
    const blob = this.#blobPath(etag);
    return (await sizeIfFile(blob)) === sizeBytes ? undefined : openPartFile(blob, sizeBytes);
  }

  sizeOf(commit: string, { path }: RepoFile): Promise<number | undefined> {
    return sizeIfFile(join(this.snapshotPath(commit), path));
  }

  /** The snapshot is the only source of information about what another tool downloaded. */
  async names(commit: string): Promise<readonly string[]> {
    return localFolder(this.snapshotPath(commit))
      .list()
      .catch(() => []);
  }

  /** Adds a blob to a snapshot atomically: as a relative link, or as a copy where links are not supported. */
  async add(commit: string, file: RepoFile): Promise<void> {
    const blob = this.#blobPath(file.etag);
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

  #blobPath(etag: string): string {
    return join(this.#path, 'blobs', etag);
  }

  #listingPath(commit: string): string {
    return join(this.#path, '.winnow', `${commit}.json`);
  }
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
