/** One thread of a roofline measurement: runs a kernel when all threads of the round have arrived. */
import { parentPort, workerData } from 'node:worker_threads';

type Kernel = (begin: number, count: number) => number;

const { modules, memory } = workerData as { modules: Record<string, WebAssembly.Module>; memory: WebAssembly.Memory };
const variants: Record<string, Record<string, Kernel>> = {};
for (const [variant, module] of Object.entries(modules)) {
  variants[variant] = new WebAssembly.Instance(module, { env: { memory } }).exports as Record<string, Kernel>;
}
const arrivals = new Int32Array(memory.buffer, 0, 1);

parentPort?.on(
  'message',
  ({
    variant,
    kernel,
    begin,
    count,
    repeats,
    target,
  }: Record<'begin' | 'count' | 'repeats' | 'target', number> & Record<'variant' | 'kernel', string>) => {
    const run = variants[variant]?.[kernel] as Kernel;
    Atomics.add(arrivals, 0, 1);
    while (Atomics.load(arrivals, 0) < target);
    const startMs = performance.now();
    let sum = 0;
    for (let i = 0; i < repeats; i++) sum = (sum + run(begin, count)) | 0;
    parentPort?.postMessage({ timeMs: performance.now() - startMs, sum });
  },
);
