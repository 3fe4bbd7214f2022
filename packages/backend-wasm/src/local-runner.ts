/** Jobs on the calling thread, record by record, with a turn for the host's event loop in between. */
import type { WasmHost } from './host.js';
import { controlWords, heapBase } from './layout.js';
import type { Runner } from './runner.js';
import { instantiate, type WasmMemory, type WasmModule } from './web-assembly.js';

/** How long records may run before the host's event loop gets a turn. */
const maxBusyMs = 8;

export function createLocalRunner(module: WasmModule, memory: WasmMemory, host: WasmHost): Runner {
  const exports = instantiate(module, memory, host.now);
  const control = new Int32Array(memory.buffer, 0, heapBase / 4);
  const jobAt = controlWords.job / 4;
  let lastYield = host.now();
  let isCancelled = false;
  return {
    numThreads: 1,
    async run({ address, begin, end }) {
      isCancelled = false;
      for (let record = begin; record < end; record++) {
        control[jobAt] = address;
        control[jobAt + 1] = record;
        control[jobAt + 2] = record + 1;
        exports.runAlone();
        if (host.now() - lastYield > maxBusyMs) {
          await host.yieldToHost();
          lastYield = host.now();
        }
        if (isCancelled) return record + 1 === end;
      }
      return true;
    },
    cancel() {
      isCancelled = true;
    },
    async dispose() {
      isCancelled = true;
    },
  };
}
