/** One thread of a roofline measurement: runs a kernel when all threads of the round have arrived. */
import { createRequire } from 'node:module';
import { parentPort, workerData } from 'node:worker_threads';
import type { NativeAddon, NativeKernels } from '@winnow/native';

type Kernel = (begin: number, count: number) => number;

const { modules, memory, native } = workerData as {
  modules: Record<string, WebAssembly.Module>;
  memory: WebAssembly.Memory;
  native: Pick<NativeKernels, 'path' | 'level'> | undefined;
};
const variants: Record<string, Record<string, Kernel>> = {};
for (const [variant, module] of Object.entries(modules)) {
  variants[variant] = new WebAssembly.Instance(module, { env: { memory } }).exports as Record<string, Kernel>;
}
if (native !== undefined) {
  const { path, level } = native;
  const addon = createRequire(import.meta.url)(path) as NativeAddon;
  // only reading uses the memory
  variants['native'] = {
    f32: (begin, count) => addon.measurePeak(level, 'f32', new Uint8Array(memory.buffer, begin, 1), count),
    int8: (begin, count) => addon.measurePeak(level, 'int8', new Uint8Array(memory.buffer, begin, 1), count),
    read: (begin, count) => addon.measurePeak(level, 'read', new Uint8Array(memory.buffer, begin, count), 0),
  };
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
