/** Questions to the user that an answer waits for: one at a time, gone when the answer is stopped. */
import { signal, type Signal } from '@preact/signals';
import type { CallRequest, Consent } from '@winnow/mcp';

export type Question =
  | { readonly type: 'consent'; readonly request: CallRequest; readonly answer: (consent: Consent) => void }
  /** Undefined: the user gives no result. */
  | { readonly type: 'result'; readonly request: CallRequest; readonly answer: (result: string | undefined) => void };

export class Questions {
  readonly current: Signal<Question | undefined> = signal(undefined);

  /** @throws the reason of `abort` */
  consent(request: CallRequest, abort: AbortSignal): Promise<Consent> {
    return this.#ask((answer) => ({ type: 'consent', request, answer }), abort);
  }

  /** @throws the reason of `abort` */
  result(request: CallRequest, abort: AbortSignal): Promise<string | undefined> {
    return this.#ask((answer) => ({ type: 'result', request, answer }), abort);
  }

  async #ask<Answer>(create: (answer: (value: Answer) => void) => Question, abort: AbortSignal): Promise<Answer> {
    abort.throwIfAborted();
    const { promise, resolve, reject } = Promise.withResolvers<Answer>();
    const stop = (): void => reject(abort.reason);
    abort.addEventListener('abort', stop, { once: true });
    this.current.value = create(resolve);
    try {
      return await promise;
    } finally {
      abort.removeEventListener('abort', stop);
      this.current.value = undefined;
    }
  }
}
