/** Marks the first runs of jobs with native kernels, in which a defective kernel is most likely to crash the process. */
import type { Program } from '@winnow/ops';

/** Kernels and partition of a record depend on its sizes, so the first run of each order of magnitude counts. */
export class FirstRuns {
  readonly #enter: () => () => void;
  readonly #symbols: readonly number[];
  readonly #scalars: Int32Array;
  readonly #seen = new WeakMap<object, Set<string>>();

  /** @param scalars words of a step, which contain the sizes of symbols */
  constructor({ scalars: { slots }, symbols }: Program, scalars: Int32Array, enter: () => () => void) {
    this.#enter = enter;
    this.#scalars = scalars;
    this.#symbols = [...symbols.keys()].flatMap((symbol) => slots.get(symbol)?.wordOffset ?? []);
  }

  /** Runs a job that has native kernels. `action` returns whether all of it ran. */
  run(job: object, action: () => boolean | Promise<boolean>): boolean | Promise<boolean> {
    const seen = this.#seen.get(job) ?? new Set();
    const magnitudes = this.#symbols.map((at) => Math.clz32(this.#scalars[at])).join();
    if (seen.has(magnitudes)) return action();
    this.#seen.set(job, seen);
    return between(this.#enter(), action, (isComplete) => isComplete && seen.add(magnitudes));
  }
}

/** Calls `leave` when the action has returned or thrown, and `note` with its result. */
function between(
  leave: () => void,
  action: () => boolean | Promise<boolean>,
  note: (isComplete: boolean) => void,
): boolean | Promise<boolean> {
  let result: boolean | Promise<boolean> = false;
  try {
    result = action();
  } finally {
    if (typeof result === 'boolean') leave();
  }
  if (typeof result === 'boolean') note(result);
  else result.then((isComplete) => (leave(), note(isComplete)), leave);
  return result;
}
