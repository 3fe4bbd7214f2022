/**
 * Pages of prompts in a blob store, which any number of servers share. A store that fails or is slow costs a request a limited time,
 * and is then left alone for a while.
 */
import type { PromptStore, PromptStoreStatistics } from '@winnow/engine';
import { BlobError, type BlobStore } from '@winnow/jobs';
import { checkOptions, IoError, type OptionNames } from '@winnow/tensor';

export interface BlobPromptStoreOptions {
  /** Maximum time of a read in milliseconds; a write may take ten times as long. Default 2000. */
  readonly timeoutMs?: number;
  /** Time in milliseconds for which the store is not used after a failure. Default 30 000. */
  readonly pauseMs?: number;
  /** Clock in milliseconds. Default: `performance.now`. */
  readonly now?: () => number;
}

const optionNames: OptionNames<BlobPromptStoreOptions> = { timeoutMs: true, pauseMs: true, now: true };

/**
 * Maximum number of keys whose pages are known to be stored. The oldest keys are forgotten; their pages are looked up
 * before they are written again.
 */
const maxKnown = 100_000;

/** Its size is limited by the store's own rules of expiry. */
export function createBlobPromptStore(blobs: BlobStore, options: BlobPromptStoreOptions = {}): PromptStore {
  checkOptions(options, optionNames);
  const { timeoutMs = 2000, pauseMs = 30_000, now = () => performance.now() } = options;
  return new BlobPromptStore(blobs, { timeoutMs, pauseMs, now });
}

class BlobPromptStore implements PromptStore {
  readonly #blobs: BlobStore;
  readonly #options: Required<BlobPromptStoreOptions>;
  /** Sizes by key. */
  readonly #known = new Map<string, number>();
  #usedBytes = 0;
  #pausedUntilMs = -Infinity;

  constructor(blobs: BlobStore, options: Required<BlobPromptStoreOptions>) {
    this.#blobs = blobs;
    this.#options = options;
  }

  has(key: string): boolean {
    return this.#known.has(key) || this.#isPaused();
  }

  async read(key: string): Promise<Uint8Array | undefined> {
    if (this.#isPaused()) return undefined;
    try {
      const page = await this.#within(1, async (signal) => join(this.#blobs.read(pathOf(key), { signal })));
      this.#add(key, page.byteLength);
      return page;
    } catch (error) {
      this.#forget(key);
      if (reasonOf(error) === 'missing') return undefined;
      throw this.#failed(error);
    }
  }

  async write(key: string, page: Uint8Array): Promise<void> {
    if (this.#isPaused()) return;
    try {
      await this.#within(10, (signal) => this.#blobs.write(pathOf(key), [page], { ifAbsent: true, signal }));
    } catch (error) {
      if (reasonOf(error) !== 'exists') throw this.#failed(error);
    }
    this.#add(key, page.byteLength);
  }

  async remove(key: string): Promise<void> {
    this.#forget(key);
    await this.#within(1, (signal) => this.#blobs.delete(pathOf(key), { signal }));
  }

  /** Of the pages that this process has read and written. */
  statistics(): PromptStoreStatistics {
    return { numPages: this.#known.size, usedBytes: this.#usedBytes };
  }

  /** Also ends when a store does not respect the signal. */
  async #within<T>(factor: number, call: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const timeoutMs = this.#options.timeoutMs * factor;
    const ending = new AbortController();
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        const error = new IoError({ source: this.#blobs.name, message: `no answer within ${timeoutMs} ms` });
        reject(error);
        ending.abort(error);
      }, timeoutMs);
    });
    try {
      const running = call(ending.signal);
      running.catch(() => undefined); // ignores failures after the timeout
      return await Promise.race([running, late]);
    } finally {
      clearTimeout(timer);
    }
  }

  #isPaused(): boolean {
    return this.#options.now() < this.#pausedUntilMs;
  }

  #failed(error: unknown): unknown {
    this.#pausedUntilMs = this.#options.now() + this.#options.pauseMs;
    return error;
  }

  #add(key: string, sizeBytes: number): void {
    this.#forget(key);
    this.#known.set(key, sizeBytes);
    this.#usedBytes += sizeBytes;
    if (this.#known.size > maxKnown) this.#forget(this.#known.keys().next().value as string);
  }

  #forget(key: string): void {
    this.#usedBytes -= this.#known.get(key) ?? 0;
    this.#known.delete(key);
  }
}

/** Spreads pages over subfolders, so that no folder of a file system gets too many names. */
const pathOf = (key: string): string => `${key.slice(0, 2)}/${key}.page`;

const reasonOf = (error: unknown): string | undefined => (BlobError.isInstance(error) ? error.reason : undefined);

async function join(parts: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const copies: Uint8Array[] = [];
  for await (const part of parts) copies.push(part.slice());
  return Buffer.concat(copies);
}
