/** A folder of pages: one file each, named by its key, in least-recently-used order over all runs. */
import { readdir, readFile, rm, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { fileSink, makeFolder, partPath } from '@winnow/bytes/node';
import { ArgumentError, CapacityError, checkOptions, IoError, type OptionNames } from '@winnow/tensor';
import type { PromptStore, PromptStoreOptions, PromptStoreStatistics } from '../runtime/prompt-cache/store.js';

const optionNames: OptionNames<PromptStoreOptions> = { maxBytes: true };
const suffix = '.page';
const namePattern = /^[0-9a-f]{64}\.page(?:\.[^/]*\.part)?$/;

/**
 * Opens a folder, which is created if necessary. Processes may share it: each finds the pages of the others, and keeps those that it
 * knows within the limit.
 * @throws {IoError} when it cannot be read or created
 * @throws {ArgumentError} when `maxBytes` is not a positive number
 */
export async function openPromptFolder(folder: string, options: PromptStoreOptions): Promise<PromptStore> {
  checkOptions(options, optionNames);
  const { maxBytes } = options;
  if (!(maxBytes > 0)) {
    throw new ArgumentError({ argument: 'maxBytes', expected: 'a number above 0', actual: String(maxBytes) });
  }
  try {
    await makeFolder(folder);
    const store = new PromptFolder(folder, maxBytes);
    await store.scan();
    return store;
  } catch (cause) {
    if (IoError.isInstance(cause)) throw cause;
    throw new IoError({ source: folder, message: (cause as Error).message }, { cause });
  }
}

class PromptFolder implements PromptStore {
  readonly #folder: string;
  readonly #maxBytes: number;
  /** Sizes by key, the least recently used one first. */
  readonly #sizes = new Map<string, number>();
  #usedBytes = 0;

  constructor(folder: string, maxBytes: number) {
    this.#folder = folder;
    this.#maxBytes = maxBytes;
  }

  /** Finds the pages of earlier runs, and removes what killed processes have left. Other files are left alone. */
  async scan(): Promise<void> {
    const names = (await readdir(this.#folder)).filter((name) => namePattern.test(name));
    const pages: { readonly key: string; readonly sizeBytes: number; readonly usedMs: number }[] = [];
    for (const name of names) {
      const key = name.slice(0, name.indexOf('.'));
      if (name.endsWith('.part')) {
        await partPath(this.#pathOf(key));
        continue;
      }
      const stats = await stat(join(this.#folder, name)).catch(() => undefined); // another process has removed it
      if (stats?.isFile() === true) pages.push({ key, sizeBytes: stats.size, usedMs: stats.mtimeMs });
    }
    pages.sort((a, b) => a.usedMs - b.usedMs);
    for (const { key, sizeBytes } of pages) this.#add(key, sizeBytes);
    await this.#makeRoom(0);
  }

  has(key: string): boolean {
    return this.#sizes.has(key);
  }

  async read(key: string): Promise<Uint8Array | undefined> {
    const path = this.#pathOf(key);
    try {
      const page = await readFile(path);
      this.#forget(key);
      this.#add(key, page.byteLength);
      const now = new Date();
      await utimes(path, now, now).catch(() => undefined); // the order of the next run
      return page;
    } catch (cause) {
      this.#forget(key);
      if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
      throw new IoError({ source: path, message: (cause as Error).message }, { cause });
    }
  }

  async write(key: string, page: Uint8Array): Promise<void> {
    const { byteLength } = page;
    if (byteLength > this.#maxBytes) {
      const available = this.#maxBytes;
      throw new CapacityError({ resource: 'prompt cache', needed: byteLength, available, unit: 'bytes' });
    }
    await this.#makeRoom(byteLength);
    const sink = await fileSink(this.#pathOf(key), { mode: 0o600 });
    try {
      await sink.write(page);
    } catch (error) {
      await sink.abort();
      throw error;
    }
    await sink.close();
    this.#forget(key);
    this.#add(key, byteLength);
  }

  async remove(key: string): Promise<void> {
    this.#forget(key);
    await rm(this.#pathOf(key), { force: true });
  }

  statistics(): PromptStoreStatistics {
    return { numPages: this.#sizes.size, usedBytes: this.#usedBytes };
  }

  #pathOf(key: string): string {
    return join(this.#folder, `${key}${suffix}`);
  }

  #add(key: string, sizeBytes: number): void {
    this.#sizes.set(key, sizeBytes);
    this.#usedBytes += sizeBytes;
  }

  #forget(key: string): void {
    this.#usedBytes -= this.#sizes.get(key) ?? 0;
    this.#sizes.delete(key);
  }

  /** Removes the least recently used pages. */
  async #makeRoom(neededBytes: number): Promise<void> {
    for (const key of this.#sizes.keys()) {
      if (this.#usedBytes + neededBytes <= this.#maxBytes) return;
      await this.remove(key);
    }
  }
}
