/** The static home: the packages of Winnow in a worker, so that the page never waits for a model. */
import {
  ChatError,
  type CachedModel,
  type ChatBackend,
  type ChatEvent,
  type LoadProgress,
  type ModelChoice,
  type ModelLoader,
} from './contract.js';
import type { FromWorker, ToWorker, WorkerCall } from './worker-protocol.js';

interface Pending {
  readonly onEvent?: (event: ChatEvent) => void;
  readonly onProgress?: (progress: LoadProgress) => void;
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: unknown) => void;
}

/** Calls of a worker by number. */
class WorkerClient {
  readonly #worker: Worker;
  readonly #pending = new Map<number, Pending>();
  #numCalls = 0;
  /** Why the worker ended. */
  #failure: ChatError | undefined;

  constructor(worker: Worker) {
    this.#worker = worker;
    worker.addEventListener('message', ({ data }: MessageEvent<FromWorker>) => this.#receive(data));
    // without a message when its code could not be loaded
    worker.addEventListener('error', ({ message }) => this.#fail(message || 'its code cannot be loaded'));
    worker.addEventListener('messageerror', () => this.#fail('a message cannot be read'));
  }

  call(
    call: WorkerCall,
    { onEvent, onProgress, signal }: Pick<Pending, 'onEvent' | 'onProgress'> & { readonly signal?: AbortSignal } = {},
  ): Promise<unknown> {
    const id = this.#numCalls++;
    const abort = (): void => this.#post({ id, abort: true });
    return new Promise((resolve, reject) => {
      if (signal?.aborted === true) {
        reject(signal.reason);
        return;
      }
      if (this.#failure !== undefined) {
        reject(this.#failure);
        return;
      }
      this.#pending.set(id, { resolve, reject, ...(onEvent && { onEvent }), ...(onProgress && { onProgress }) });
      signal?.addEventListener('abort', abort, { once: true });
      this.#post({ id, call });
    }).finally(() => signal?.removeEventListener('abort', abort));
  }

  #post(message: ToWorker): void {
    this.#worker.postMessage(message);
  }

  #receive(message: FromWorker): void {
    const pending = this.#pending.get(message.id);
    if (pending === undefined) return;
    if (message.type === 'event') pending.onEvent?.(message.event);
    else if (message.type === 'progress') pending.onProgress?.(message.progress);
    else {
      this.#pending.delete(message.id);
      if (message.type === 'result') pending.resolve(message.result);
      else pending.reject(new ChatError('failed', message.message));
    }
  }

  /** What an uncaught error leaves behind is unknown: the worker ends, and each later call fails. */
  #fail(message: string): void {
    this.#worker.terminate();
    this.#failure ??= new ChatError('failed', `the worker of the models ended: ${message} (reload the page)`);
    for (const { reject } of this.#pending.values()) reject(this.#failure);
    this.#pending.clear();
  }
}

/** Events that arrive by calls, as something to iterate. */
class EventQueue {
  readonly #events: ChatEvent[] = [];
  #wake: () => void = () => {};
  #isDone = false;
  #error: unknown;

  push(event: ChatEvent): void {
    this.#events.push(event);
    this.#wake();
  }

  end(error?: unknown): void {
    this.#isDone = true;
    this.#error = error;
    this.#wake();
  }

  async *read(): AsyncGenerator<ChatEvent, void, void> {
    for (;;) {
      yield* this.#events.splice(0);
      if (this.#events.length > 0) continue;
      if (this.#isDone) break;
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
    if (this.#error !== undefined) throw this.#error;
  }
}

export function createLocalBackend(): ChatBackend {
  const worker = new Worker(new URL('../worker/main.ts', import.meta.url), { type: 'module', name: 'winnow' });
  const client = new WorkerClient(worker);
  const loader: ModelLoader = {
    load: (source, settings, onProgress, signal) =>
      client.call({ type: 'load', source, settings }, { onProgress, signal }) as Promise<ModelChoice>,
    cached: () => client.call({ type: 'cached' }) as Promise<readonly CachedModel[]>,
    remove: (name) => client.call({ type: 'remove', name }) as Promise<void>,
  };
  return {
    loader,
    models: () => client.call({ type: 'models' }) as Promise<readonly ModelChoice[]>,
    toolFault: (model, tool, signal) =>
      client.call({ type: 'tool-fault', model, tool }, { signal }) as Promise<string | undefined>,
    countTokens: (model, text) => client.call({ type: 'count-tokens', model, text }) as Promise<number>,
    metrics: (signal) => client.call({ type: 'metrics' }, { signal }) as Promise<string>,
    async *chat(call, signal) {
      const queue = new EventQueue();
      const done = client.call({ type: 'chat', call }, { onEvent: (event) => queue.push(event), signal });
      done.then(
        () => queue.end(),
        (error: unknown) => queue.end(signal.aborted ? signal.reason : error),
      );
      yield* queue.read();
    },
  };
}
