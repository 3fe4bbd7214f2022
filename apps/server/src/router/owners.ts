import { LruMap } from '@winnow/tensor';

/** Which server something belongs to, of the entries that were used last. */
export class Owners {
  readonly #ids = new LruMap<string, string>();
  readonly #maxEntries: number;

  constructor(maxEntries: number) {
    this.#maxEntries = maxEntries;
  }

  get size(): number {
    return this.#ids.size;
  }

  get(key: string): string | undefined {
    return this.#ids.get(key);
  }

  set(key: string, serverId: string): void {
    this.#ids.set(key, serverId);
    this.#ids.evict(this.#maxEntries);
  }

  /** Removes all entries of a server. */
  forget(serverId: string): void {
    for (const key of [...this.#ids.keys()]) if (this.#ids.get(key) === serverId) this.#ids.remove(key);
  }
}
