import { join } from 'node:path';
import type { Backend, NeuronLayout } from '@winnow/ops';
import { gigaPerSecond, milliseconds, type Figure } from '../../harness/figure.js';
import { measure, type Contender, type Timing } from '../../harness/measure.js';
import {
  measureOptions,
  readOf,
  sidesOf,
  threadsText,
  type Side,
  type Suite,
  type SuiteContext,
} from '../../harness/suite.js';
import { ffnColdReads } from './cold.js';
import { layerBytes, loadDense, loadPredictor, loadSparse, type FfnCase } from './programs.js';

const suite = 'ffn';
/** The rows of a neuron interleaved, or in separate matrices. */
const layouts: readonly NeuronLayout[] = ['interleaved', 'separate'];
/** Ratios of active neurons. */
const fullRatios = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1];
const quickRatios = [0.25, 1];
/** Hidden and FFN sizes of Llama 3 8B and TinyLlama. */
const fullShapes = [
  [4096, 14336],
  [2048, 5632],
] as const;
/** Ranks of predictors. */
const fullRanks = [64, 128];
/**
 * Bytes of weights read per run, as in 24 blocks of Llama 3 8B, and maximum number of blocks. Starting and ending a run
 * takes up to 0.2 ms when threads sleep in between; the other ops of a token share this, so it must not count as time
 * of the blocks.
 */
const runWeights = 24 * 3 * 4096 * 14336;
const maxBlocks = 128;
/**
 * Bytes of weights in memory, as in all blocks of TinyLlama in q4_0; blocks reuse them in turn, with other neurons,
 * like successive tokens.
 */
const streamedBytes = 384 * 2 ** 20;

/** Sparse FFN blocks compared with dense ones. */
export const ffn: Suite = {
  name: suite,
  summary: 'sparse FFN blocks: time against dense and against bytes read, break-even, predictors, cold reads',
  async *run(context) {
    const { quick, threads, dtypes = ['q8_0', 'q4_0'], modelsFolder } = context.options;
    for (const [hiddenDim, ffnDim] of context.options.shapes ?? (quick ? ([[64, 256]] as const) : fullShapes)) {
      for (const dtype of dtypes) {
        const layer = layerBytes({ dtype, hiddenDim, ffnDim, numLayers: 1, numTokens: 1 });
        const numLayers = quick ? 2 : Math.min(maxBlocks, Math.ceil(runWeights / (3 * hiddenDim * ffnDim)));
        const numWeights = Math.min(numLayers, Math.max(2, Math.round(streamedBytes / layer)));
        const shape = { dtype, hiddenDim, ffnDim, numLayers, numWeights, numTokens: 1 };
        for (const side of sidesOf(context)) {
          for (const numThreads of threads) yield* measureCase(context, shape, numThreads, side);
        }
      }
    }
    yield* ffnColdReads(context, join(modelsFolder, 'ffn'));
  },
};

async function* measureCase(context: SuiteContext, shape: FfnCase, threads: number, side: Side): AsyncIterable<Figure> {
  const { options, machine } = context;
  const ratios = options.quick ? quickRatios : fullRatios;
  const ranks = options.quick ? [32] : fullRanks;
  const backend = await context.createBackend(threads, 'workers', side.isNative);
  const memory = await machine.probe(readOf(side), threads);
  const contenders = { memory, ...(await contendersOf(backend, shape, ratios, ranks)) };
  const timings = await measure(contenders, measureOptions(options, 9)).finally(() => backend.dispose());
  const name = `${shape.dtype} ${shape.hiddenDim}x${shape.ffnDim}, ${threadsText(threads)}${side.label}`;
  const memoryRate = gigaPerSecond(memory.amount, timings['memory']!).value;
  const ratioOf = `${readOf(side)}, ${threadsText(threads)}`;
  const perLayer = milliseconds(timings['dense']!, shape.numLayers);
  const rate = gigaPerSecond(layerBytes(shape) * shape.numLayers, timings['dense']!);
  yield { suite, case: `${name}: dense`, ...rate, unit: 'GB/s', ratio: rate.value / memoryRate, ratioOf };
  yield { suite, case: `${name}: dense block`, ...perLayer, unit: 'ms', ratio: 1, ratioOf: 'itself' };
  for (const ratio of ratios) yield* sparseFigures(name, shape, ratio, { timings, memoryRate, ratioOf });
  for (const layout of layouts) yield breakEven(name, layout, ratios, timings);
  for (const rank of ranks) {
    const timing = timings[`predictor ${rank}`]!;
    const cost = milliseconds(timing, shape.numLayers);
    const ofDense = { ratio: timing.medianMs / timings['dense']!.medianMs, ratioOf: 'dense' };
    yield { suite, case: `${name}: predictor of rank ${rank}`, ...cost, unit: 'ms', ...ofDense };
    for (const ratio of ratios) yield predictedFigure(`${name}: rank ${rank}`, shape, ratio, timing, timings);
  }
}

const countOf = (ratio: number, { ffnDim }: FfnCase): number => Math.max(1, Math.round(ratio * ffnDim));

async function contendersOf(
  backend: Backend,
  shape: FfnCase,
  ratios: readonly number[],
  ranks: readonly number[],
): Promise<Record<string, Contender>> {
  const contenders: Record<string, Contender> = {};
  const dense = await loadDense(backend, shape);
  // the first run after others wakes the threads and spreads them over cores; decoding runs token after token
  contenders['dense'] = {
    async run() {
      await dense.run();
      return dense.run();
    },
  };
  for (const layout of layouts) {
    const sparse = await loadSparse(backend, shape, layout);
    for (const ratio of ratios) {
      contenders[`${layout} ${ratio}`] = {
        async run() {
          // as for dense: threads that slept while neurons were drawn would start late
          await sparse.draw(countOf(ratio, shape));
          await sparse.other.run();
          return sparse.program.run();
        },
      };
    }
  }
  for (const rank of ranks) {
    const predictor = await loadPredictor(backend, shape, rank);
    contenders[`predictor ${rank}`] = {
      async run() {
        await predictor.run();
        return predictor.run();
      },
    };
  }
  return contenders;
}

interface Measured {
  readonly timings: Readonly<Record<string, Timing>>;
  /** GB/s of the machine's memory, and its name. */
  readonly memoryRate: number;
  readonly ratioOf: string;
}

function* sparseFigures(
  name: string,
  shape: FfnCase,
  ratio: number,
  { timings, memoryRate, ratioOf }: Measured,
): Iterable<Figure> {
  const whole = timings['dense']!;
  const timing = timings[`interleaved ${ratio}`]!;
  const label = `${name}: ${Number((100 * ratio).toFixed(1))} % active`;
  const share = countOf(ratio, shape) / shape.ffnDim;
  const block = milliseconds(timing, shape.numLayers);
  yield { suite, case: label, ...block, unit: 'ms', ratio: timing.medianMs / whole.medianMs, ratioOf: 'dense' };
  const gained = { value: whole.medianMs / timing.medianMs, best: whole.minMs / timing.minMs, unit: 'x' };
  const ideal = { ratio: gained.value * share, ratioOf: `ideal, ${(1 / share).toFixed(2)} x` };
  yield { suite, case: `${label}: speed-up`, ...gained, ...ideal };
  const read = gigaPerSecond(layerBytes(shape) * shape.numLayers * share, timing);
  yield { suite, case: `${label}: bytes`, ...read, unit: 'GB/s', ratio: read.value / memoryRate, ratioOf };
}

/** A sparse block after its predictor, compared with the active share of the dense block after the same predictor. */
function predictedFigure(
  name: string,
  shape: FfnCase,
  ratio: number,
  predictor: Timing,
  timings: Measured['timings'],
): Figure {
  const share = countOf(ratio, shape) / shape.ffnDim;
  const [whole, sparse] = [timings['dense']!, timings[`interleaved ${ratio}`]!];
  const sum = { medianMs: sparse.medianMs + predictor.medianMs, minMs: sparse.minMs + predictor.minMs };
  const ideal = share * whole.medianMs + predictor.medianMs;
  return {
    suite,
    case: `${name} and ${Number((100 * ratio).toFixed(1))} % active`,
    value: sum.medianMs / shape.numLayers,
    best: sum.minMs / shape.numLayers,
    unit: 'ms',
    ratio: ideal / sum.medianMs,
    ratioOf: 'ideal and predictor',
  };
}

/** The ratio of active neurons above which dense is faster, interpolated between measured ratios. */
function breakEven(
  name: string,
  layout: NeuronLayout,
  ratios: readonly number[],
  timings: Measured['timings'],
): Figure {
  const shareAt = (time: (timing: Timing) => number): number => {
    const limit = time(timings['dense']!);
    let before: readonly [ratio: number, time: number] = [0, 0];
    for (const ratio of ratios) {
      const found = time(timings[`${layout} ${ratio}`]!);
      if (found > limit) {
        const [from, least] = before;
        return 100 * (from + ((ratio - from) * (limit - least)) / (found - least));
      }
      before = [ratio, found];
    }
    return 100;
  };
  const value = shareAt(({ medianMs }) => medianMs);
  const best = shareAt(({ minMs }) => minMs);
  return {
    suite,
    case: `${name}: break-even${layout === 'separate' ? ', separate rows' : ''}`,
    value,
    best,
    unit: '% active',
    ratio: value / 100,
    ratioOf: 'all neurons',
  };
}
