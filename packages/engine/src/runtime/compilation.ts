/** Computations in slices, with turns of the event loop between slices. */
import { Deadline, type TimeLimit } from '@winnow/grammar';
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

/**
 * The option of compilers of grammars and schemas.
 * @throws {ArgumentError} for a time that is not positive
 */
export function deadlineOf(compileTimeoutMs: number | undefined, now: () => number): Deadline | undefined {
  if (compileTimeoutMs === undefined) return undefined;
  if (compileTimeoutMs > 0) return new Deadline(compileTimeoutMs, now);
  const expected = 'a positive number';
  throw new ArgumentError({ argument: 'compileTimeoutMs', expected, actual: String(compileTimeoutMs) });
}

/** What ends the wait of one caller. */
export interface WaitLimits {
  readonly deadline?: Deadline | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** The latest results by key. Callers for one key share a computation, which stops when none of them waits for it anymore. */
export class Compilations<Result> {
  readonly #maxKept: number;
  readonly #byKey = new LruMap<string, Compilation<Result>>();

  constructor(maxKept: number) {
    this.#maxKept = maxKept;
  }

  /**
   * The computation, which begins when the first caller waits for it.
   * @param work checks the limit after each slice
   */
  get(key: string, work: (limit: TimeLimit) => Sliced<Result>): Compilation<Result> {
    let compilation = this.#byKey.get(key);
    if (compilation === undefined) {
      compilation = new Compilation(work);
      this.#keep(key, compilation);
    }
    return compilation;
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

/** A caller that waits. */
interface Waiter {
  readonly deadline: Deadline | undefined;
  readonly reject: (reason: Error) => void;
}

/** A computation that several callers wait for, each until its own deadline. */
class Compilation<Result> implements TimeLimit {
  readonly result: Promise<Result>;
  readonly #waiters = new Set<Waiter>();
  readonly #firstWait = Promise.withResolvers<void>();

  constructor(work: (limit: TimeLimit) => Sliced<Result>) {
    this.result = this.#run(work(this));
    this.result.catch(() => {}); // callers get the error from `wait`
  }

  /**
   * The computation stops when no caller is left.
   * @throws {CapacityError} after the deadline
   * @throws the reason of the signal when it is aborted
   */
  async wait({ deadline, signal }: WaitLimits): Promise<Result> {
    signal?.throwIfAborted();
    const { promise: ended, reject } = Promise.withResolvers<never>();
    const waiter = { deadline, reject };
    const onAbort = (): void => reject(signal?.reason as Error);
    this.#waiters.add(waiter);
    this.#firstWait.resolve();
    signal?.addEventListener('abort', onAbort, { once: true });
    try {
      return await Promise.race([this.result, ended]);
    } finally {
      this.#waiters.delete(waiter);
      signal?.removeEventListener('abort', onAbort);
    }
  }

  /** Rejects callers whose deadline has passed. */
  check(refusal: (elapsedMs: number, timeoutMs: number) => Error): void {
    for (const { deadline, reject } of this.#waiters) {
      if (deadline === undefined) continue;
      const { elapsedMs, timeoutMs } = deadline;
      if (elapsedMs > timeoutMs) reject(refusal(elapsedMs, timeoutMs));
    }
  }

  async #run(work: Sliced<Result>): Promise<Result> {
    await this.#firstWait.promise;
    for (;;) {
      const step = work.next();
      if (step.done === true) return step.value;
      await hostTurn();
      if (this.#waiters.size === 0)
        throw new DOMException('All requests that waited for the compilation were aborted.', 'AbortError');
    }
  }
}
