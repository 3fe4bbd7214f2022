/** Jobs on the calling thread, record by record, with a turn for the host's event loop in between. */
import type { WasmHost } from './host.js';
import { controlWords, heapBase } from './layout.generated.js';
import type { Job, Runner } from './runner.js';
import { instantiate, type WasmMemory, type WasmModule } from './web-assembly.js';

/** How long records may run before the host's event loop gets a turn. */
const maxBusyMs = 8;

export function createLocalRunner(module: WasmModule, memory: WasmMemory, host: WasmHost): Runner {
  const exports = instantiate(module, memory, host.now);
  const control = new Int32Array(memory.buffer, 0, heapBase / 4);
  const jobAt = controlWords.job / 4;
  let lastYield = host.now();
  let isCancelled = false;

  function run(begin: number, end: number): void {
    control[jobAt + 1] = begin;
    control[jobAt + 2] = end;
    exports.runAlone();
  }

  async function yieldToHost(): Promise<void> {
    await host.yieldToHost();
    lastYield = host.now();
  }

  async function runRecords({ begin, end }: Job): Promise<boolean> {
    isCancelled = false;
    for (let record = begin; record < end; record++) {
      run(record, record + 1);
      if (host.now() - lastYield > maxBusyMs) await yieldToHost();
      if (isCancelled) return record + 1 === end;
    }
    return true;
  }

  return {
    numThreads: 1,
    run(job) {
      control[jobAt] = job.address;
      if (!job.share.isShort) return runRecords(job);
      const start = host.now();
      run(job.begin, job.end);
      const time = host.now();
      job.share.observe(time - start);
      return time - lastYield > maxBusyMs ? yieldToHost().then(() => true) : true;
    },
    cancel() {
      isCancelled = true;
    },
    fail: () => undefined,
    async dispose() {
      isCancelled = true;
    },
  };
}
