/**
 * Keeps the pages of computed prompts and of answers in a store and restores them, also in later runs of the program. Works with
 * whole pages at the beginning of a sequence, for models without recurrent state whose cache is in the pool.
 */
import type { SessionOptionValue } from '@winnow/kv-cache';
import type { PromptCacheMetrics } from '../../metrics/model-metrics.js';
import type { KvPool } from '../kv-pool.js';
import type { Scheduler } from '../scheduler.js';
import type { Sequence } from '../sequence.js';
import { decodePage, encodePage, writePage, type PageRows } from './page-codec.js';
import { pageKeys } from './page-keys.js';
import { ComputeTime, maxReadAhead, PageTier } from './page-tier.js';
import type { PromptStore } from './store.js';

/** What saved contents depend on. */
export interface SessionKey {
  readonly modelHash: string;
  readonly options: Readonly<Record<string, SessionOptionValue>>;
}

export interface PromptCacheParts {
  readonly pool: KvPool;
  readonly scheduler: Scheduler;
  /** In the order in which they are asked. */
  readonly stores: readonly PromptStore[];
  readonly sessionKey: SessionKey;
  readonly now: () => number;
}

/** A page that was read. */
interface ReadPage {
  readonly tier: PageTier;
  readonly rows: PageRows;
  /** Time of the read alone. */
  readonly readMs: number;
}

/** Prompts that wait to be stored hold their blocks; further ones are stored when they are used again. */
const maxPending = 4;

export class PromptCache {
  readonly #parts: PromptCacheParts;
  readonly #tiers: readonly PageTier[];
  readonly #computing: ComputeTime;
  #storing: Promise<void> = Promise.resolve();
  #numPending = 0;
  #isClosed = false;
  #lastProblem = '';
  #readPages = 0;
  #readMs = 0;
  #storedPages = 0;
  #damagedPages = 0;
  #failures = 0;

  constructor(parts: PromptCacheParts) {
    this.#parts = parts;
    this.#tiers = parts.stores.map((store) => new PageTier(store));
    this.#computing = new ComputeTime(parts.pool.manager.blockSize);
  }

  metrics(): PromptCacheMetrics {
    const { stores, pool } = this.#parts;
    return {
      numReadTokens: this.#readPages * pool.manager.blockSize,
      numStoredPages: this.#storedPages,
      numDamagedPages: this.#damagedPages,
      numFailures: this.#failures,
      readMs: this.#readMs,
      sizeBytes: stores.reduce((sum, store) => sum + store.statistics().usedBytes, 0),
    };
  }

  /** Measures prefill. */
  noteComputed(numTokens: number, milliseconds: number): void {
    this.#computing.note(numTokens, milliseconds);
  }

  /**
   * Appends stored pages to a sequence that holds a prefix of the prompt, from stores where reading is cheaper than computing.
   * The first page tells whether there are any; then further ones are read while one is copied. The last token is never part of
   * them. Pages that cannot be read are computed.
   * @returns number of restored tokens
   * @throws the signal's reason
   */
  async restore(sequence: Sequence, prompt: Int32Array, signal: AbortSignal | undefined): Promise<number> {
    const { pool, sessionKey } = this.#parts;
    const { blockSize } = pool.manager;
    const first = sequence.view.numTokens / blockSize;
    const numPages = Math.floor((prompt.length - 1) / blockSize);
    if (!Number.isInteger(first) || first >= numPages || !sequence.view.isShareable) return 0;
    const whole = prompt.subarray(0, numPages * blockSize);
    const keys = pageKeys(whole, { sessionKey, salt: sequence.salt, blockSize });
    for (let index = 0; index < first; index++) await keys.next();
    for (const tier of this.#tiers) tier.beginPrompt(this.#computing.pageMs);
    const ahead: Promise<ReadPage | undefined>[] = [];
    let [numStarted, numRestored] = [first, first];
    for (;;) {
      signal?.throwIfAborted();
      const limit = Math.min(numPages - numStarted, numRestored === first ? 1 : maxReadAhead - ahead.length);
      for (let started = 0; started < limit && this.#isAnyWorthReading(); started++) {
        const { value: key } = (await keys.next()) as { readonly value: string };
        ahead.push(this.#read(key, tokensOf(prompt, numStarted++, blockSize)));
      }
      const next = ahead.shift();
      if (next === undefined || !(await this.#restorePage(sequence, numRestored, next, prompt))) break;
      numRestored++;
    }
    return (numRestored - first) * blockSize;
  }

  /**
   * Stores the pages of the first `numTokens` tokens of a sequence while it goes on. Never fails.
   * @param numSaved of an earlier call: nothing is done unless there are more pages
   */
  save(sequence: Sequence, numTokens: number, numSaved = 0): void {
    const { pool } = this.#parts;
    const { manager } = pool;
    const pagesOf = (count: number): number => Math.floor(count / manager.blockSize);
    const numPages = pagesOf(numTokens);
    if (this.#isClosed || this.#numPending >= maxPending || numPages <= pagesOf(numSaved)) return;
    if (sequence.preempted !== undefined || !sequence.view.isShareable) return;
    const tokens = sequence.view.tokens.slice(0, numPages * manager.blockSize);
    const fork = manager.fork(sequence.view.id);
    pool.drafts.add(fork.id);
    pool.apply(manager.truncate(fork.id, tokens.length));
    const blocks = [...fork.blocks];
    const { salt } = sequence; // of now: a later prompt may rotate the keys of the sequence in another way
    this.#numPending++;
    this.#storing = this.#storing
      .then(() => this.#store(salt, tokens, blocks))
      .catch((error: unknown) => this.#note('could not store a page', error))
      .finally(() => {
        this.#numPending--;
        pool.drafts.delete(fork.id);
        pool.apply(manager.free(fork.id));
        pool.onFreed();
      });
  }

  /** Resolves when the prompts so far are stored, at most `maxPending` of them. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#storing;
  }

  #isAnyWorthReading(): boolean {
    return this.#tiers.some((tier) => tier.isWorthReading(this.#computing.pageMs));
  }

  /** Waits for a page. Returns whether it was appended to the sequence. */
  async #restorePage(
    sequence: Sequence,
    index: number,
    reading: Promise<ReadPage | undefined>,
    prompt: Int32Array,
  ): Promise<boolean> {
    const { pool, scheduler, now } = this.#parts;
    const { blockSize } = pool.manager;
    const startMs = now();
    const page = await reading;
    if (page === undefined) return false;
    const readyMs = now();
    const tokens = tokensOf(prompt, index, blockSize);
    const isPlaced = await scheduler.exclusive(() => this.#place(sequence, index * blockSize, tokens, page.rows));
    if (!isPlaced) return false;
    // without the time of stores that were asked before, and of copying other pages; with the step of other sequences that runs until
    // the page can be copied
    const costMs = Math.min(readyMs - startMs, page.readMs) + now() - readyMs;
    page.tier.noteRead(costMs);
    this.#readPages++;
    this.#readMs += costMs;
    return true;
  }

  /** Asks the stores in their order. Never fails. */
  async #read(key: string, tokens: Int32Array): Promise<ReadPage | undefined> {
    const { now } = this.#parts;
    for (const tier of this.#tiers) {
      if (!tier.isWorthReading(this.#computing.pageMs)) continue;
      tier.noteStart();
      const startMs = now();
      const rows = await this.#readFrom(tier.store, key, tokens);
      if (rows !== undefined) return { tier, rows, readMs: now() - startMs };
    }
    return undefined;
  }

  async #readFrom(store: PromptStore, key: string, tokens: Int32Array): Promise<PageRows | undefined> {
    const { pool, sessionKey } = this.#parts;
    let file: Uint8Array | undefined;
    try {
      file = await store.read(key);
    } catch (error) {
      this.#failures++;
      this.#note('could not read a page', error);
    }
    if (file === undefined) return undefined;
    try {
      return await decodePage(pool, file, tokens, sessionKey);
    } catch (error) {
      this.#damagedPages++;
      this.#note('ignores a damaged page', error);
      await store.remove(key).catch(() => undefined);
      return undefined;
    }
  }

  /** Between two steps. Returns false if there is no room or the sequence has changed. */
  async #place(sequence: Sequence, firstPosition: number, tokens: Int32Array, rows: PageRows): Promise<boolean> {
    const { pool } = this.#parts;
    const { view } = sequence;
    const isHere = sequence.preempted === undefined && view.numTokens === firstPosition;
    if (!isHere || !pool.hasRoomFor(view.id, tokens.length)) return false;
    try {
      sequence.append(tokens);
      await pool.memory.flush();
      await writePage(pool, view.blocks.at(-1) as number, firstPosition, rows);
      sequence.commit(false);
      return true;
    } catch (error) {
      sequence.rollback(); // the tokens are computed; a lost device is noticed by the next step
      this.#note('could not restore a page', error);
      return false;
    }
  }

  async #store(salt: string, tokens: Int32Array, blocks: readonly number[]): Promise<void> {
    const { pool, stores, sessionKey } = this.#parts;
    const { blockSize } = pool.manager;
    const { lost } = pool;
    let numKeys = 0;
    for await (const key of pageKeys(tokens, { sessionKey, salt, blockSize })) {
      const index = numKeys++;
      const lacking = stores.filter((store) => !store.has(key));
      if (lacking.length === 0) continue;
      const own = tokens.slice(index * blockSize, (index + 1) * blockSize);
      const page = await encodePage(pool, blocks[index] as number, own, sessionKey);
      if (pool.lost !== lost) return; // the blocks were lost with the device
      for (const store of lacking) await this.#write(store, key, page);
    }
  }

  async #write(store: PromptStore, key: string, page: Uint8Array): Promise<void> {
    try {
      await store.write(key, page);
      this.#storedPages++;
    } catch (error) {
      this.#failures++;
      this.#note('could not store a page', error);
    }
  }

  /** Reports a problem, but does not repeat itself. */
  #note(what: string, error: unknown): void {
    const problem = `the prompt cache ${what}: ${error instanceof Error ? error.message : String(error)}`;
    if (problem === this.#lastProblem) return;
    this.#lastProblem = problem;
    this.#parts.pool.report({ kind: 'notice', text: problem });
  }
}

function tokensOf(prompt: Int32Array, page: number, blockSize: number): Int32Array {
  return prompt.slice(page * blockSize, (page + 1) * blockSize);
}
