/** Workers of Node. */
import { availableParallelism, totalmem } from 'node:os';
import { Worker } from 'node:worker_threads';
import { workerBody, type WasmHost } from './host.js';

const source = `
const { workerData: start, parentPort } = require('node:worker_threads');
const post = (message) => parentPort.postMessage(message);
${workerBody}
`;

/** Node with `worker_threads`. */
export function createHost(): WasmHost {
  return {
    availableParallelism: availableParallelism(),
    totalMemoryBytes: totalmem(),
    now: () => performance.now(),
    yieldToHost: () => new Promise((resolve) => setImmediate(resolve)),
    startWorker(start, { onFailure, onJobDone }) {
      const worker = new Worker(source, {
        eval: true,
        workerData: start,
        name: `winnow-wasm-${start.thread}`,
        execArgv: [],
      });
      let isLeaving = false;
      let isBusy = false;
      worker.unref();
      // starting up references the worker again
      worker.once('online', () => isBusy || isLeaving || worker.unref());
      worker.on('message', onJobDone);
      worker.on('error', (error) => onFailure(error));
      worker.on('exit', (code) => {
        if (!isLeaving) onFailure(new Error(`the worker ended with code ${code}`));
      });
      return {
        setBusy(busy) {
          isBusy = busy;
          if (busy) worker.ref();
          else worker.unref();
        },
        async terminate() {
          isLeaving = true;
          await worker.terminate();
        },
      };
    },
  };
}
