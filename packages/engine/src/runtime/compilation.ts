/** Computations in slices, with turns of the event loop between slices. */
import { Deadline } from '@winnow/grammar';
import { ArgumentError, LruMap, type Sliced } from '@winnow/tensor';
import { hostTurn } from './gather.js';

/** @throws the reason of the signal when it is aborted between slices */
export async function runSliced<Result>(work: Sliced<Result>, signal?: AbortSignal): Promise<Result> {
  for (;;) {
    signal?.throwIfAborted();
    const step = work.next();
    if (step.done === true) return step.value;
    await hostTurn();
  }
}

export interface CompileLimits {
  readonly deadline?: Deadline;
}

/**
 * The option of compilers of grammars and schemas.
 * @throws {ArgumentError} for a time that is not positive
 */
export function deadlineOf(compileTimeoutMs: number | undefined, now: () => number): CompileLimits {
  if (compileTimeoutMs === undefined) return {};
  if (compileTimeoutMs > 0) return { deadline: new Deadline(compileTimeoutMs, now) };
  const expected = 'a positive number';
  throw new ArgumentError({ argument: 'compileTimeoutMs', expected, actual: String(compileTimeoutMs) });
}

/** The latest results by key. Callers for one key share a computation, which stops when none of them waits for it anymore. */
export class Compilations<Result> {
  readonly #maxKept: number;
  readonly #byKey = new LruMap<string, Compilation<Result>>();

  constructor(maxKept: number) {
    this.#maxKept = maxKept;
  }

  /** @throws the reason of the signal when it is aborted */
  async get(key: string, work: () => Sliced<Result>, signal?: AbortSignal): Promise<Result> {
    let compilation = this.#byKey.get(key);
    if (compilation === undefined) {
      compilation = new Compilation(work());
      this.#keep(key, compilation);
    }
    return compilation.wait(signal);
  }

  #keep(key: string, compilation: Compilation<Result>): void {
    const kept = this.#byKey;
    kept.set(key, compilation);
    kept.evict(this.#maxKept);
    compilation.result.catch(() => {
      if (kept.get(key) === compilation) kept.remove(key); // it may have been evicted and started again
    });
  }
}

/** A computation that several callers wait for. */
class Compilation<Result> {
  readonly result: Promise<Result>;
  #numWaiting = 0;

  constructor(work: Sliced<Result>) {
    this.result = this.#run(work);
    this.result.catch(() => {}); // callers get the error from `wait`
  }

  /** @throws the reason of the signal when it is aborted; the computation stops when no caller is left */
  async wait(signal?: AbortSignal): Promise<Result> {
    signal?.throwIfAborted();
    this.#numWaiting++;
    const ended = new AbortController();
    const options = { once: true, signal: ended.signal };
    const aborted = new Promise<never>((_, reject) => {
      signal?.addEventListener('abort', () => reject(signal.reason as Error), options);
    });
    try {
      return await Promise.race([this.result, aborted]);
    } finally {
      this.#numWaiting--;
      ended.abort();
    }
  }

  async #run(work: Sliced<Result>): Promise<Result> {
    await Promise.resolve(); // until the first caller waits
    for (;;) {
      const step = work.next();
      if (step.done === true) return step.value;
      await hostTurn();
      if (this.#numWaiting === 0)
        throw new DOMException('All requests that waited for the compilation were aborted.', 'AbortError');
    }
  }
}
