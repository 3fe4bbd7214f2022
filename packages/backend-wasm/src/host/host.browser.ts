/** Workers of browsers, from `blob:` URLs. */
import { workerBody, type WasmHost } from './host.js';

interface BrowserWorker {
  onmessage: ((event: { readonly data: unknown }) => void) | null;
  onerror: ((event: unknown) => void) | null;
  postMessage(message: unknown): void;
  terminate(): void;
}
interface Browser {
  readonly Worker: new (url: string, options: { readonly name: string }) => BrowserWorker;
  readonly URL: { createObjectURL(blob: Blob): string; revokeObjectURL(url: string): void };
  readonly navigator: { readonly hardwareConcurrency?: number };
  readonly performance: { now(): number };
  readonly MessageChannel: new () => { readonly port1: MessageEnd; readonly port2: MessageEnd };
}
interface MessageEnd {
  onmessage: ((event: unknown) => void) | null;
  postMessage(message: unknown): void;
}

const source = `
onmessage = ({ data: start }) => {
  const post = (message) => postMessage(message);
  try {
    ${workerBody}
  } catch (error) {
    post(String(error));
  }
};
`;

/** A browser, or anything with its Worker, Blob and URL. */
export function createHost(): WasmHost {
  const browser = globalThis as unknown as Browser;
  const eventLoop = new EventLoop(browser);
  let refusal: Promise<string | undefined> | undefined;
  return {
    availableParallelism: browser.navigator?.hardwareConcurrency ?? 1,
    now: () => browser.performance.now(),
    yieldToHost: () => eventLoop.yield(),
    workerRefusal: () => (refusal ??= probeWorker(browser)),
    startWorker(start, { onFailure, onJobDone }) {
      const worker = openWorker(browser, source, `winnow-wasm-${start.thread}`);
      worker.onmessage = ({ data }) => (data === 'done' ? onJobDone() : onFailure(new Error(String(data))));
      worker.onerror = onFailure;
      worker.postMessage(start);
      return {
        setBusy: () => undefined,
        async terminate() {
          worker.terminate();
        },
      };
    },
  };
}

function openWorker({ URL: urls, Worker }: Browser, code: string, name: string): BrowserWorker {
  const url = urls.createObjectURL(new Blob([code], { type: 'text/javascript' }));
  try {
    return new Worker(url, { name });
  } finally {
    urls.revokeObjectURL(url);
  }
}

/** Starts a worker that only answers. Where the policy of the page forbids workers, it emits an error event instead. */
function probeWorker(browser: Browser): Promise<string | undefined> {
  const refusal = 'workers cannot start (a Content-Security-Policy needs worker-src blob:)';
  return new Promise((resolve) => {
    let worker: BrowserWorker;
    try {
      worker = openWorker(browser, 'postMessage(null)', 'winnow-probe');
    } catch {
      resolve(refusal);
      return;
    }
    worker.onmessage = () => {
      worker.terminate();
      resolve(undefined);
    };
    worker.onerror = () => resolve(refusal);
  });
}

/** Yields to the event loop by posting a message to itself, because browsers delay zero timers by 4 ms. */
class EventLoop {
  readonly #port: MessageEnd;
  #waiting: (() => void)[] = [];

  constructor({ MessageChannel }: Browser) {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => this.#resume();
    this.#port = port2;
  }

  yield(): Promise<void> {
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
      this.#port.postMessage(null);
    });
  }

  #resume(): void {
    const resumed = this.#waiting;
    this.#waiting = [];
    for (const resolve of resumed) resolve();
  }
}
