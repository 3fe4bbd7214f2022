/** A map in order of use: `get` and `set` make an entry the most recently used one. */
export class LruMap<Key, Value extends {}> {
  readonly #entries = new Map<Key, Value>();

  get size(): number {
    return this.#entries.size;
  }

  /** Does not count as a use. */
  has(key: Key): boolean {
    return this.#entries.has(key);
  }

  get(key: Key): Value | undefined {
    const value = this.#entries.get(key);
    if (value !== undefined) this.set(key, value);
    return value;
  }

  set(key: Key, value: Value): void {
    this.#entries.delete(key);
    this.#entries.set(key, value);
  }

  /** Removes and returns the value. */
  remove(key: Key): Value | undefined {
    const value = this.#entries.get(key);
    this.#entries.delete(key);
    return value;
  }

  clear(): void {
    this.#entries.clear();
  }

  /** The least recently used first. */
  keys(): IterableIterator<Key> {
    return this.#entries.keys();
  }

  /** In the same order. */
  values(): IterableIterator<Value> {
    return this.#entries.values();
  }

  /** Removes and returns the least recently used value if there are more than `maxSize`. */
  evict(maxSize: number): Value | undefined {
    if (this.#entries.size <= maxSize) return undefined;
    const [oldest] = this.#entries.keys();
    return this.remove(oldest as Key);
  }
}
