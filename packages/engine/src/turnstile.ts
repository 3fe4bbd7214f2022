/** Lets one async task at a time pass, in the order of arrival. */
export interface Turnstile {
  run<T>(task: () => Promise<T>): Promise<T>;
}

export function createTurnstile(): Turnstile {
  let last: Promise<unknown> = Promise.resolve();
  return {
    run<T>(task: () => Promise<T>): Promise<T> {
      const turn = last.then(task, task);
      last = turn.catch(() => undefined);
      return turn;
    },
  };
}
