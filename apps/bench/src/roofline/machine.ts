/**
 * The peaks of this machine from WebAssembly: probes that other measurements interleave with their own work, so that
 * shares of a peak refer to the same minute.
 */
import { once } from 'node:events';
import { createRequire } from 'node:module';
import { Worker } from 'node:worker_threads';
import type { NativeAddon, NativeKernels } from '@winnow/native';
import { rooflineModules } from './kernels.generated.js';

/** Names of the probes. */
export const probeNames = [
  'memory read',
  'cache read',
  'f32 mul+add',
  'f32 relaxed madd',
  'f32 tile 4x8',
  'i16 dot',
  'i8 relaxed dot',
] as const;
/** Probes of native kernels, for machines that have some. */
export const nativeProbeNames = ['native memory read', 'native f32 fma', 'native i8 dot'] as const;
export type WasmProbeName = (typeof probeNames)[number];
export type ProbeName = WasmProbeName | (typeof nativeProbeNames)[number];

interface Kernel {
  /** The module that contains it: with or without relaxed SIMD. */
  readonly variant: keyof typeof rooflineModules;
  readonly kernel: string;
  readonly unit: Probe['unit'];
  /** Operations of one pass of an arithmetic kernel. */
  readonly opsPerPass: number;
}

const kernels: Readonly<Record<WasmProbeName, Kernel>> = {
  'memory read': { variant: 'relaxed', kernel: 'readMemory', unit: 'GB/s', opsPerPass: 0 },
  'cache read': { variant: 'relaxed', kernel: 'readMemory', unit: 'GB/s', opsPerPass: 0 },
  'f32 mul+add': { variant: 'simd', kernel: 'multiplyAdds', unit: 'GFLOP/s', opsPerPass: 8 * 10 * 8 },
  'f32 relaxed madd': { variant: 'relaxed', kernel: 'multiplyAdds', unit: 'GFLOP/s', opsPerPass: 8 * 10 * 8 },
  'f32 tile 4x8': { variant: 'relaxed', kernel: 'f32Tile', unit: 'GFLOP/s', opsPerPass: 128 * 64 },
  'i16 dot': { variant: 'simd', kernel: 'integerDots', unit: 'GOP/s', opsPerPass: 8 * 10 * 16 },
  'i8 relaxed dot': { variant: 'relaxed', kernel: 'integerDots', unit: 'GOP/s', opsPerPass: 8 * 10 * 32 },
};

/** One measurement of the machine. */
export interface Probe {
  readonly name: ProbeName;
  readonly threads: number;
  readonly unit: 'GB/s' | 'GFLOP/s' | 'GOP/s';
  /** Total bytes or operations of one run of all threads. */
  readonly amount: number;
  /** Runs the probe; returns the milliseconds of the slowest thread. */
  run(): Promise<number>;
}

export interface Machine {
  probe(name: ProbeName, threads: number): Promise<Probe>;
  dispose(): Promise<void>;
}

export interface MachineOptions {
  /** Total bytes that the read probe reads on all threads: far more than the caches hold. */
  readonly memoryBytes: number;
  /** Operations of one run of an arithmetic probe per thread. */
  readonly opsPerRun: number;
  readonly native?: NativeKernels | undefined;
}

const pageBytes = 65536;
const maxThreads = 64;
/** First bytes: the arrival counter. Then 8 KiB of operands per thread, then the memory to read. */
const operandBytes = 8192;
const operandBegin = 4096;
const readBegin = 16 * pageBytes;
const cachedBytes = 128 * 1024;

export function createMachine(options: MachineOptions): Machine {
  return new ProbedMachine(options);
}

class ProbedMachine implements Machine {
  readonly #options: MachineOptions;
  readonly #pool: ProbeWorkers;
  #isFilled = false;

  constructor(options: MachineOptions) {
    this.#options = options;
    this.#pool = new ProbeWorkers(options.native);
  }

  async probe(name: ProbeName, threads: number): Promise<Probe> {
    if (threads > maxThreads) throw new Error(`at most ${maxThreads} threads can be measured, got ${threads}`);
    if (name.endsWith('read')) return this.#readProbe(name, threads, name === 'cache read');
    if (name === 'native f32 fma' || name === 'native i8 dot') return this.#nativeProbe(name, threads);
    const { variant, kernel, unit, opsPerPass } = kernels[name as WasmProbeName];
    const count = Math.max(1, Math.floor(this.#options.opsPerRun / opsPerPass));
    const begin = (thread: number): number => operandBegin + thread * operandBytes;
    const run = (): Promise<number> => this.#pool.run(threads, { variant, kernel, begin, count, repeats: 1 });
    return { name, threads, unit, amount: count * opsPerPass * threads, run };
  }

  dispose(): Promise<void> {
    return this.#pool.dispose();
  }

  /** Bytes per thread: whole steps of the kernel. */
  #share(threads: number): number {
    return Math.floor(this.#options.memoryBytes / threads / pageBytes) * pageBytes;
  }

  /** Reads the parts of all threads once, or as much of them as stays in the caches again and again. */
  async #readProbe(name: ProbeName, threads: number, isCached: boolean): Promise<Probe> {
    const pool = this.#pool;
    const { variant, kernel } = name === 'native memory read' ? nativeRead : kernels[name as WasmProbeName];
    if (!this.#isFilled) {
      pool.memory.grow(Math.ceil(this.#options.memoryBytes / pageBytes));
      const { variant: filler } = kernels['memory read'];
      await pool.run(1, { variant: filler, kernel: 'fill', begin: () => readBegin, count: this.#share(1), repeats: 1 });
      this.#isFilled = true;
    }
    const share = this.#share(threads);
    const count = isCached ? Math.min(cachedBytes, share) : share;
    const repeats = isCached ? Math.max(1, Math.floor(share / count)) : 1;
    const begin = (thread: number): number => readBegin + thread * count;
    const run = (): Promise<number> => pool.run(threads, { variant, kernel, begin, count, repeats });
    return { name, threads, unit: 'GB/s', amount: count * repeats * threads, run };
  }

  /** Arithmetic on registers; a first pass returns its number of operations. */
  #nativeProbe(name: 'native f32 fma' | 'native i8 dot', threads: number): Probe {
    const { native, opsPerRun } = this.#options;
    const kernel = name === 'native f32 fma' ? 'f32' : 'int8';
    if (native === undefined) throw new Error(`${name}: this machine has no native kernels`);
    const addon = createRequire(import.meta.url)(native.path) as NativeAddon;
    const opsPerPass = addon.measurePeak(native.level, kernel, new Uint8Array(1), 1);
    const count = Math.max(1, Math.floor(opsPerRun / opsPerPass));
    const begin = (): number => operandBegin;
    const run = (): Promise<number> => this.#pool.run(threads, { variant: 'native', kernel, begin, count, repeats: 1 });
    const unit = kernel === 'f32' ? 'GFLOP/s' : 'GOP/s';
    return { name, threads, unit, amount: count * opsPerPass * threads, run };
  }
}

const nativeRead = { variant: 'native', kernel: 'read' } as const;

interface Task {
  readonly variant: Kernel['variant'] | 'native';
  readonly kernel: string;
  readonly begin: (thread: number) => number;
  readonly count: number;
  readonly repeats: number;
}

/** Workers over one memory, started when they are first needed. */
class ProbeWorkers {
  readonly memory = new WebAssembly.Memory({ initial: readBegin / pageBytes, maximum: 65536, shared: true });
  readonly #modules = { simd: compile(rooflineModules.simd), relaxed: compile(rooflineModules.relaxed) };
  readonly #workers: Worker[] = [];
  readonly #native: Pick<NativeKernels, 'path' | 'level'> | undefined;
  #numArrivals = 0;

  constructor(native: NativeKernels | undefined) {
    this.#native = native && { path: native.path, level: native.level };
    fillOperands(this.memory);
  }

  /** @returns the time of the slowest thread in milliseconds */
  async run(threads: number, { variant, kernel, begin, count, repeats }: Task): Promise<number> {
    const file = import.meta.url.endsWith('.ts') ? './roofline-worker.ts' : './roofline-worker.js';
    const workerData = { modules: this.#modules, memory: this.memory, native: this.#native };
    while (this.#workers.length < threads) {
      this.#workers.push(new Worker(new URL(file, import.meta.url), { workerData }));
    }
    this.#numArrivals += threads;
    const target = this.#numArrivals;
    const answers = this.#workers.slice(0, threads).map(async (worker, thread) => {
      const answer = once(worker, 'message'); // rejects when the worker fails
      worker.postMessage({ variant, kernel, begin: begin(thread), count, repeats, target });
      const [{ timeMs }] = (await answer) as [{ timeMs: number; sum: number }];
      return timeMs;
    });
    return Math.max(...(await Promise.all(answers)));
  }

  async dispose(): Promise<void> {
    await Promise.all(this.#workers.map((worker) => worker.terminate()));
  }
}

function compile(text: string): WebAssembly.Module {
  return new WebAssembly.Module(Buffer.from(text, 'base64'));
}

/** Small normal numbers: their sums stay finite and no operand is denormal. */
function fillOperands(memory: WebAssembly.Memory): void {
  const operands = new Float32Array(memory.buffer, operandBegin, (maxThreads * operandBytes) / 4);
  for (let i = 0; i < operands.length; i++) operands[i] = ((i % 7) - 3.5) / 1024;
}
