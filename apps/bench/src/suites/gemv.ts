import { sizeOf } from '@winnow/tensor';
import { gigaPerSecond, type Figure } from '../harness/figure.js';
import { measure, type Contender, type Timing } from '../harness/measure.js';
import {
  measureOptions,
  readOf,
  sidesOf,
  threadsText,
  type Side,
  type Suite,
  type SuiteContext,
} from '../harness/suite.js';
import type { Probe } from '../roofline/machine.js';
import { dtypesOf, loadMatmul, numOperations, peakOf, shapesOf, weightBytes, type MatmulCase } from './matmul-cases.js';

const fullShapes: readonly (readonly [number, number])[] = [
  [2048, 2048],
  [256, 2048],
  [5632, 2048],
  [2048, 5632],
  [32000, 2048],
];
/** Bytes of weights per run: far more than the caches hold, as in decode. */
const streamedBytes = 256 * 2 ** 20;

/** GEMV over many matrices, as in decode: memory-bound. */
export const gemv: Suite = {
  name: 'gemv',
  summary: 'GEMV with weights from memory: share of the memory read bandwidth',
  async *run(context) {
    const { options } = context;
    for (const dtype of dtypesOf(options)) {
      for (const [numOutputs, numInputs] of shapesOf(options, fullShapes)) {
        const matrixBytes = sizeOf(dtype, numOutputs * numInputs);
        const numMatrices = options.quick ? 3 : Math.max(1, Math.round(streamedBytes / matrixBytes));
        yield* measureCase(context, { dtype, numOutputs, numInputs, numTokens: 1, numMatrices });
      }
    }
  },
};

async function* measureCase(context: SuiteContext, matmul: MatmulCase): AsyncIterable<Figure> {
  const { options, machine } = context;
  const contenders: Record<string, Contender> = {};
  const probes: Record<string, Probe> = {};
  const closers: (() => Promise<void>)[] = [];
  for (const side of sidesOf(context)) {
    for (const threads of options.threads) {
      const backend = await context.createBackend(threads, 'workers', side.isNative);
      closers.push(() => backend.dispose());
      const work = await loadMatmul(backend, matmul);
      // the first run after others wakes the threads and spreads them over cores; decoding runs token after token
      contenders[`work ${threads}${side.label}`] = {
        async run() {
          await work.run();
          return work.run();
        },
      };
      for (const name of [readOf(side), peakOf(matmul.dtype, side)]) {
        const probe = await machine.probe(name, threads);
        probes[`${name}, ${threadsText(threads)}`] = probe;
        contenders[`${name}, ${threadsText(threads)}`] = probe;
      }
    }
  }
  const timings = await measure(contenders, measureOptions(options, 7)).finally(async () => {
    for (const close of closers) await close();
  });
  for (const side of sidesOf(context)) yield* figuresOf(matmul, options.threads, side, { timings, probes });
}

interface Measured {
  readonly timings: Readonly<Record<string, Timing>>;
  readonly probes: Readonly<Record<string, Probe>>;
}

/** Shares of memory and arithmetic, scaling with threads, and native kernels against those of WebAssembly. */
function* figuresOf(
  matmul: MatmulCase,
  threadCounts: readonly number[],
  side: Side,
  { timings, probes }: Measured,
): Iterable<Figure> {
  const { dtype, numOutputs, numInputs } = matmul;
  const suite = 'gemv';
  const [minThreads = 1] = threadCounts;
  const bytes = weightBytes(matmul);
  const peakRate = (name: string): number => gigaPerSecond(probes[name]!.amount, timings[name]!).value;
  const readRate = (contender: string): number => gigaPerSecond(bytes, timings[contender]!).value;
  for (const threads of threadCounts) {
    const timing = timings[`work ${threads}${side.label}`]!;
    const read = gigaPerSecond(bytes, timing);
    const weights = gigaPerSecond(numOperations(matmul) / 2, timing);
    const name = `${dtype} ${numOutputs}x${numInputs}, ${threadsText(threads)}${side.label}`;
    const memory = `${readOf(side)}, ${threadsText(threads)}`;
    const arithmetic = `${peakOf(dtype, side)}, ${threadsText(threads)}`;
    yield { suite, case: name, ...read, unit: 'GB/s', ratio: read.value / peakRate(memory), ratioOf: memory };
    const ratio = (2 * weights.value) / peakRate(arithmetic);
    yield { suite, case: name, ...weights, unit: 'Gweights/s', ratio, ratioOf: arithmetic };
    const figure = { suite, ...read, unit: 'GB/s' };
    if (side.isNative) {
      const gain = read.value / readRate(`work ${threads}`);
      yield { ...figure, case: `${name}: gain`, ratio: gain, ratioOf: `WebAssembly, ${threadsText(threads)}` };
    }
    if (threads === minThreads) continue;
    const scaling = read.value / readRate(`work ${minThreads}${side.label}`);
    yield { ...figure, case: `${name}: scaling`, ratio: scaling, ratioOf: `the same, ${threadsText(minThreads)}` };
  }
}
