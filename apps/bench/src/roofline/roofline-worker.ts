/** One thread of the machine's measurement: runs a kernel when all threads of the round have arrived. */
import { parentPort, workerData } from 'node:worker_threads';

const { module, memory } = workerData as { module: WebAssembly.Module; memory: WebAssembly.Memory };
const instance = new WebAssembly.Instance(module, { env: { memory } });
const kernels = instance.exports as Record<string, (begin: number, count: number) => number>;
const arrivals = new Int32Array(memory.buffer, 0, 1);

parentPort?.on(
  'message',
  ({
    kernel,
    begin,
    count,
    repeats,
    target,
  }: Record<'begin' | 'count' | 'repeats' | 'target', number> & { kernel: string }) => {
    const run = kernels[kernel] as (begin: number, count: number) => number;
    Atomics.add(arrivals, 0, 1);
    while (Atomics.load(arrivals, 0) < target);
    const startMs = performance.now();
    let sum = 0;
    for (let i = 0; i < repeats; i++) sum = (sum + run(begin, count)) | 0;
    parentPort?.postMessage({ timeMs: performance.now() - startMs, sum });
  },
);
