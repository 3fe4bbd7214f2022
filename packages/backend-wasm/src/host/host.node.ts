/** Workers of Node. */
import { availableParallelism, totalmem } from 'node:os';
import { Worker } from 'node:worker_threads';
import type { NativeChoice, NativeResult } from '@winnow/native';
import { choiceOfEnvironment, openNative } from '@winnow/native/node';
import { workerBody, type WasmHost, type WorkerEvents, type WorkerHandle, type WorkerStart } from './host.js';

const source = `
const { workerData: start, parentPort } = require('node:worker_threads');
const post = (message) => parentPort.postMessage(message);
const loadAddon = require;
${workerBody}
`;

/**
 * A poll takes six times as long in JavaScriptCore as in V8; this many polls take the same time. Longer spinning slows
 * programs down when other processes need the cores, too.
 */
const bunSpins = 17_000;

/** The host of Node and of compatible runtimes with `worker_threads`. */
export function createHost({ bun }: NodeJS.Dict<string> = process.versions): WasmHost {
  return {
    ...(bun === undefined ? {} : { spins: bunSpins }),
    availableParallelism: availableParallelism(),
    totalMemoryBytes: totalmem(),
    now: () => performance.now(),
    yieldToHost: () => new Promise((resolve) => setImmediate(resolve)),
    startWorker: (start, events) => new NodeWorker(start, events),
    openNative: open,
  };
}

async function open(choice: NativeChoice | undefined): Promise<NativeResult> {
  const chosen = choice ?? choiceOfEnvironment();
  return chosen instanceof Error ? { refusal: chosen.message } : openNative(chosen);
}

class NodeWorker implements WorkerHandle {
  readonly #worker: Worker;
  #isBusy = false;
  #isLeaving = false;

  constructor(start: WorkerStart, { onFailure, onJobDone }: WorkerEvents) {
    const name = `winnow-wasm-${start.thread}`;
    this.#worker = new Worker(source, { eval: true, workerData: start, name, execArgv: [] });
    this.#worker.unref();
    // starting up references the worker again
    this.#worker.once('online', () => this.#isBusy || this.#isLeaving || this.#worker.unref());
    this.#worker.on('message', onJobDone);
    this.#worker.on('error', (error) => onFailure(error));
    this.#worker.on('exit', (code) => {
      if (!this.#isLeaving) onFailure(new Error(`the worker ended with code ${code}`));
    });
  }

  setBusy(isBusy: boolean): void {
    this.#isBusy = isBusy;
    if (this.#isLeaving) return; // unreferenced, the process could end before `terminate` resolves
    if (isBusy) this.#worker.ref();
    else this.#worker.unref();
  }

  async terminate(): Promise<void> {
    this.#isLeaving = true;
    await this.#worker.terminate();
  }
}
