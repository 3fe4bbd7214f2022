import { sizeOf } from '@winnow/tensor';
import { gigaPerSecond, type Figure } from '../harness/figure.js';
import { measure, type Contender } from '../harness/measure.js';
import { measureOptions, threadsText, type Suite, type SuiteContext } from '../harness/suite.js';
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
  const { dtype, numOutputs, numInputs } = matmul;
  const peak = peakOf(dtype);
  const contenders: Record<string, Contender> = {};
  const probes: Record<string, Probe> = {};
  const closers: (() => Promise<void>)[] = [];
  for (const threads of options.threads) {
    const backend = await context.createBackend(threads, 'workers');
    closers.push(() => backend.dispose());
    const work = await loadMatmul(backend, matmul);
    // the first run after others wakes the threads and spreads them over cores; decoding runs token after token
    contenders[`work ${threads}`] = {
      async run() {
        await work.run();
        return work.run();
      },
    };
    for (const name of ['memory read', peak] as const) {
      const probe = await machine.probe(name, threads);
      probes[`${name}, ${threadsText(threads)}`] = probe;
      contenders[`${name}, ${threadsText(threads)}`] = probe;
    }
  }
  const timings = await measure(contenders, measureOptions(options, 7)).finally(async () => {
    for (const close of closers) await close();
  });
  const rateOf = (name: string): number => gigaPerSecond(probes[name]!.amount, timings[name]!).value;
  const [fewest = 1] = options.threads;
  const bytes = weightBytes(matmul);
  const name = `${dtype} ${numOutputs}x${numInputs}`;
  const base = gigaPerSecond(bytes, timings[`work ${fewest}`]!).value;
  for (const threads of options.threads) {
    const timing = timings[`work ${threads}`]!;
    const read = gigaPerSecond(bytes, timing);
    const weights = gigaPerSecond(numOperations(matmul) / 2, timing);
    const caseName = `${name}, ${threadsText(threads)}`;
    const memory = `memory read, ${threadsText(threads)}`;
    const arithmetic = `${peak}, ${threadsText(threads)}`;
    const suite = 'gemv';
    yield { suite, case: caseName, ...read, unit: 'GB/s', ratio: read.value / rateOf(memory), ratioOf: memory };
    const ratio = (2 * weights.value) / rateOf(arithmetic);
    yield { suite, case: caseName, ...weights, unit: 'Gweights/s', ratio, ratioOf: arithmetic };
    if (threads === fewest) continue;
    const ratioOf = `the same, ${threadsText(fewest)}`;
    yield { suite, case: `${caseName}: scaling`, ...read, unit: 'GB/s', ratio: read.value / base, ratioOf };
  }
}
