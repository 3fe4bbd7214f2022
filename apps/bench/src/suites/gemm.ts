import { gigaPerSecond, type Figure } from '../harness/figure.js';
import { measure, type Contender } from '../harness/measure.js';
import { measureOptions, threadsText, type Suite, type SuiteContext } from '../harness/suite.js';
import { dtypesOf, loadMatmul, numOperations, peakOf, shapesOf, type MatmulCase } from './matmul-cases.js';

const fullShapes: readonly (readonly [number, number])[] = [
  [2048, 2048],
  [5632, 2048],
  [2048, 5632],
];

/** GEMM, as in prefill: compute-bound. */
export const gemm: Suite = {
  name: 'gemm',
  summary: 'GEMM: share of the arithmetic peak',
  async *run(context) {
    const { options } = context;
    for (const numTokens of options.tokens ?? [options.quick ? 16 : 256]) {
      for (const dtype of dtypesOf(options)) {
        for (const [numOutputs, numInputs] of shapesOf(options, fullShapes)) {
          yield* measureCase(context, { dtype, numOutputs, numInputs, numTokens, numMatrices: 1 });
        }
      }
    }
  },
};

async function* measureCase(context: SuiteContext, matmul: MatmulCase): AsyncIterable<Figure> {
  const { options, machine } = context;
  const { dtype, numOutputs, numInputs, numTokens } = matmul;
  const peak = peakOf(dtype);
  const contenders: Record<string, Contender> = {};
  const closers: (() => Promise<void>)[] = [];
  const peakAmounts = new Map<number, number>();
  for (const threads of options.threads) {
    const backend = await context.createBackend(threads, 'workers');
    closers.push(() => backend.dispose());
    contenders[`work ${threads}`] = await loadMatmul(backend, matmul);
    const probe = await machine.probe(peak, threads);
    contenders[`peak ${threads}`] = probe;
    peakAmounts.set(threads, probe.amount);
  }
  const timings = await measure(contenders, measureOptions(options, 7)).finally(async () => {
    for (const close of closers) await close();
  });
  const [fewest = 1] = options.threads;
  const operations = numOperations(matmul);
  const unit = peak === 'f32 relaxed madd' ? 'GFLOP/s' : 'GOP/s';
  const name = `${dtype} ${numOutputs}x${numInputs} T=${numTokens}`;
  const base = gigaPerSecond(operations, timings[`work ${fewest}`]!).value;
  for (const threads of options.threads) {
    const rate = gigaPerSecond(operations, timings[`work ${threads}`]!);
    const peakRate = gigaPerSecond(peakAmounts.get(threads)!, timings[`peak ${threads}`]!).value;
    const caseName = `${name}, ${threadsText(threads)}`;
    const figure = { suite: 'gemm', case: caseName, ...rate, unit };
    yield { ...figure, ratio: rate.value / peakRate, ratioOf: `${peak}, ${threadsText(threads)}` };
    if (threads === fewest) continue;
    yield {
      ...figure,
      case: `${caseName}: scaling`,
      ratio: rate.value / base,
      ratioOf: `the same, ${threadsText(fewest)}`,
    };
  }
}
