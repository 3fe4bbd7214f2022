import { gigaPerSecond, type Figure, type Rate } from '../harness/figure.js';
import { measure, type Contender, type Timing } from '../harness/measure.js';
import { measureOptions, sidesOf, threadsText, type Side, type Suite, type SuiteContext } from '../harness/suite.js';
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
  const contenders: Record<string, Contender> = {};
  const closers: (() => Promise<void>)[] = [];
  const amounts = new Map<string, number>();
  for (const side of sidesOf(context)) {
    for (const threads of options.threads) {
      const backend = await context.createBackend(threads, 'workers', side.isNative);
      closers.push(() => backend.dispose());
      contenders[`work ${threads}${side.label}`] = await loadMatmul(backend, matmul);
      const probe = await machine.probe(peakOf(matmul.dtype, side), threads);
      contenders[`peak ${threads}${side.label}`] = probe;
      amounts.set(`peak ${threads}${side.label}`, probe.amount);
    }
  }
  const timings = await measure(contenders, measureOptions(options, 7)).finally(async () => {
    for (const close of closers) await close();
  });
  for (const side of sidesOf(context)) yield* figuresOf(matmul, options.threads, side, { timings, amounts });
}

interface Measured {
  readonly timings: Readonly<Record<string, Timing>>;
  /** Operations of the probes. */
  readonly amounts: ReadonlyMap<string, number>;
}

/** Share of the peak, scaling with threads, and native kernels against those of WebAssembly. */
function* figuresOf(
  matmul: MatmulCase,
  threadCounts: readonly number[],
  side: Side,
  { timings, amounts }: Measured,
): Iterable<Figure> {
  const { dtype, numOutputs, numInputs, numTokens } = matmul;
  const [minThreads = 1] = threadCounts;
  const operations = numOperations(matmul);
  const peak = peakOf(dtype, side);
  const unit = peak.includes('f32') ? 'GFLOP/s' : 'GOP/s';
  const rateOf = (contender: string): Rate => gigaPerSecond(operations, timings[contender]!);
  for (const threads of threadCounts) {
    const key = `${threads}${side.label}`;
    const rate = rateOf(`work ${key}`);
    const peakRate = gigaPerSecond(amounts.get(`peak ${key}`)!, timings[`peak ${key}`]!).value;
    const name = `${dtype} ${numOutputs}x${numInputs} T=${numTokens}, ${threadsText(threads)}${side.label}`;
    const figure = { suite: 'gemm', case: name, ...rate, unit };
    yield { ...figure, ratio: rate.value / peakRate, ratioOf: `${peak}, ${threadsText(threads)}` };
    if (side.isNative) {
      const ratio = rate.value / rateOf(`work ${threads}`).value;
      yield { ...figure, case: `${name}: gain`, ratio, ratioOf: `WebAssembly, ${threadsText(threads)}` };
    }
    if (threads === minThreads) continue;
    const ratio = rate.value / rateOf(`work ${minThreads}${side.label}`).value;
    yield { ...figure, case: `${name}: scaling`, ratio, ratioOf: `the same, ${threadsText(minThreads)}` };
  }
}
