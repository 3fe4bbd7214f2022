/** Stored conversations of the Responses API: the latest, up to a number of bytes, each for its API key only. */
import type { InputItem, ResponseObject } from './schemas.js';

export interface StoredResponse {
  readonly response: ResponseObject;
  /** What a following request continues: all input so far, and the output. */
  readonly conversation: readonly InputItem[];
  /** Hash of the API key; undefined without keys. */
  readonly owner: string | undefined;
}

export class ResponseStore {
  /** From the least to the most recently used. */
  readonly #entries = new Map<string, { readonly stored: StoredResponse; readonly sizeBytes: number }>();
  readonly #maxBytes: number;
  #sizeBytes = 0;

  /** @param maxBytes of JSON; 0: nothing is stored */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  /** Drops the least recently used ones for it. A conversation beyond the limit is not stored. */
  add(stored: StoredResponse): void {
    const sizeBytes = Buffer.byteLength(JSON.stringify([stored.response, stored.conversation]));
    if (sizeBytes > this.#maxBytes) return;
    this.#entries.set(stored.response.id, { stored, sizeBytes });
    this.#sizeBytes += sizeBytes;
    for (const id of this.#entries.keys()) {
      if (this.#sizeBytes <= this.#maxBytes) break;
      this.#remove(id);
    }
  }

  /** Undefined for one that is not stored, or belongs to another key. */
  get(id: string, owner: string | undefined): StoredResponse | undefined {
    const entry = this.#entries.get(id);
    if (entry === undefined || entry.stored.owner !== owner) return undefined;
    this.#entries.delete(id);
    this.#entries.set(id, entry);
    return entry.stored;
  }

  /** Whether there was one. */
  delete(id: string, owner: string | undefined): boolean {
    if (this.get(id, owner) === undefined) return false;
    this.#remove(id);
    return true;
  }

  #remove(id: string): void {
    this.#sizeBytes -= this.#entries.get(id)?.sizeBytes ?? 0;
    this.#entries.delete(id);
  }
}
