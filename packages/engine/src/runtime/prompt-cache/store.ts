/** Where the pages of prompts are kept between runs of a program. */

/** What a store has done since it was opened. */
export interface PromptStoreStatistics {
  readonly numPages: number;
  readonly usedBytes: number;
}

/**
 * Files of pages by key, 64 hexadecimal digits that name a prefix of tokens. Models and processes may share one: their keys differ
 * unless their pages are equal. The least recently used pages make room for new ones.
 */
export interface PromptStore {
  /** Whether the page need not be written: it is there as far as this process knows, or the store is out of reach. */
  has(key: string): boolean;
  /** Undefined when there is no such page. Takes at most a limited time. @throws {IoError} when it cannot be read */
  read(key: string): Promise<Uint8Array | undefined>;
  /** The page appears complete or not at all. @throws {IoError} when it cannot be written, on a full disk for example */
  write(key: string, page: Uint8Array): Promise<void>;
  remove(key: string): Promise<void>;
  statistics(): PromptStoreStatistics;
}

/** Options of `openPromptStore`. */
export interface PromptStoreOptions {
  /** Maximum size of all pages in bytes. */
  readonly maxBytes: number;
}
