/** Measures how long at least one read was in progress. */
import type { ByteSource } from '@winnow/bytes';

export class BusyTime {
  readonly #now: () => number;
  #numReads = 0;
  #since = 0;
  #totalMs = 0;

  constructor(now: () => number) {
    this.#now = now;
  }

  /** Wraps a source so that its reads count. */
  watch(source: ByteSource): ByteSource {
    return {
      name: source.name,
      sizeBytes: source.sizeBytes,
      read: (byteOffset, target, options) => this.#during(() => source.read(byteOffset, target, options)),
      close: () => source.close(),
    };
  }

  busyMs(): number {
    return this.#totalMs + (this.#numReads > 0 ? this.#now() - this.#since : 0);
  }

  async #during(read: () => Promise<void>): Promise<void> {
    if (this.#numReads++ === 0) this.#since = this.#now();
    try {
      await read();
    } finally {
      if (--this.#numReads === 0) this.#totalMs += this.#now() - this.#since;
    }
  }
}
