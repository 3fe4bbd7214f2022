/** Splits content into parts of equal size, and limits how many are sent at once. */

/** Parts of `partBytes`; the last one may be shorter, and empty content has none. No two parts share memory. */
export async function* partsOf(
  content: AsyncIterable<Uint8Array>,
  partBytes: number,
): AsyncGenerator<Uint8Array, void, void> {
  let part = new Uint8Array(partBytes);
  let filled = 0;
  for await (const bytes of content) {
    for (let begin = 0; begin < bytes.byteLength;) {
      const end = Math.min(bytes.byteLength, begin + partBytes - filled);
      part.set(bytes.subarray(begin, end), filled);
      filled += end - begin;
      begin = end;
      if (filled < partBytes) continue;
      yield part;
      part = new Uint8Array(partBytes);
      filled = 0;
    }
  }
  if (filled > 0) yield part.subarray(0, filled);
}

/** Runs up to `limit` tasks concurrently, and fails with the first error. */
export class Window {
  readonly #limit: number;
  readonly #running = new Set<Promise<void>>();
  #failure: { readonly error: unknown } | undefined;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Resolves when the task has started. */
  async add(task: () => Promise<void>): Promise<void> {
    while (this.#running.size >= this.#limit) await Promise.race(this.#running);
    this.#check();
    const running: Promise<void> = task()
      .catch((error: unknown) => {
        this.#failure ??= { error };
      })
      .finally(() => this.#running.delete(running));
    this.#running.add(running);
  }

  async end(): Promise<void> {
    await Promise.all(this.#running);
    this.#check();
  }

  #check(): void {
    if (this.#failure !== undefined) throw this.#failure.error;
  }
}
