/** A file that is being downloaded: `<blob>.incomplete` beside the blob that it becomes. */
import { constants } from 'node:fs';
import { open, rename, rm, stat, type FileHandle } from 'node:fs/promises';
import { dirname } from 'node:path';
import { makeFolder } from '@winnow/bytes/node';
import { onDisk } from './download/disk-error.node.js';
import type { PartFile } from './download/store.js';

export function incompletePath(blobPath: string): string {
  return `${blobPath}.incomplete`;
}

export async function openPartFile(blobPath: string, sizeBytes: number): Promise<PartFile> {
  const path = incompletePath(blobPath);
  const handle = await onDisk(blobPath, async () => {
    await makeFolder(dirname(blobPath));
    return open(path, constants.O_RDWR | constants.O_CREAT, 0o644);
  });
  return new NodePartFile(handle, path, blobPath, sizeBytes);
}

class NodePartFile implements PartFile {
  readonly #handle: FileHandle;
  readonly #path: string;
  readonly #blobPath: string;
  readonly #sizeBytes: number;

  constructor(handle: FileHandle, path: string, blobPath: string, sizeBytes: number) {
    this.#handle = handle;
    this.#path = path;
    this.#blobPath = blobPath;
    this.#sizeBytes = sizeBytes;
  }

  async size(): Promise<number> {
    return (await onDisk(this.#path, () => this.#handle.stat())).size;
  }

  async read(target: Uint8Array, position: number): Promise<number> {
    const { bytesRead } = await onDisk(this.#path, () => this.#handle.read(target, 0, target.byteLength, position));
    return bytesRead;
  }

  async write(bytes: Uint8Array, position: number): Promise<void> {
    for (let written = 0; written < bytes.byteLength;) {
      const { bytesWritten } = await onDisk(this.#path, () =>
        this.#handle.write(bytes, written, bytes.byteLength - written, position + written),
      );
      written += bytesWritten;
    }
  }

  clear(): Promise<void> {
    return onDisk(this.#path, () => this.#handle.truncate(0));
  }

  async complete(): Promise<void> {
    await onDisk(this.#path, () => this.#handle.sync());
    await this.close();
    try {
      await rename(this.#path, this.#blobPath);
    } catch (error) {
      // another process may have completed the same file
      if ((await sizeIfFile(this.#blobPath)) === this.#sizeBytes) return;
      await onDisk(this.#blobPath, () => Promise.reject(error as Error));
    }
  }

  /** Removes the blob, too, if another process has meanwhile renamed this same file to it. */
  async discard(): Promise<void> {
    const [own, blob] = await Promise.all([this.#handle.stat(), stat(this.#blobPath).catch(() => undefined)]);
    await this.close();
    await rm(this.#path, { force: true });
    if (blob !== undefined && blob.ino === own.ino && blob.dev === own.dev) await rm(this.#blobPath, { force: true });
  }

  async close(): Promise<void> {
    await this.#handle.close().catch(() => undefined);
  }
}

/** Size of a regular file (links are followed), `undefined` for anything else. */
export async function sizeIfFile(path: string): Promise<number | undefined> {
  const found = await stat(path).catch(() => undefined);
  return found?.isFile() === true ? found.size : undefined;
}
