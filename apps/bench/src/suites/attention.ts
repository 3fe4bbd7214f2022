import { ProgramBuilder, type Backend, type Program } from '@winnow/ops';
import { sizeOf } from '@winnow/tensor';
import { gigaPerSecond, milliseconds, type Figure, type Rate } from '../harness/figure.js';
import { LoadedProgram } from '../harness/loaded-program.js';
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
import { randomWeights } from '../models/random-weights.js';
import type { ProbeName } from '../roofline/machine.js';

/** Heads of a 1.1B Llama. */
const numHeads = 32;
const numKvHeads = 4;
const headDim = 64;
const numLayers = 22;
const blockSize = 64;

interface AttentionCase {
  readonly numTokens: number;
  readonly numKeys: number;
  readonly numLayers: number;
}

/** Dense attention over a long cache: one token as in decode, for one layer and for all, and tiles of prefill. */
export const attention: Suite = {
  name: 'attention',
  summary: 'dense attention over a cache: share of the memory read rate, share of the float peak',
  async *run(context) {
    const { quick, contexts } = context.options;
    const lengths = contexts ?? (quick ? [64, 256] : [512, 2048, 8192, 32768]);
    for (const layers of quick ? [1, 2] : [1, numLayers]) {
      for (const numKeys of lengths) yield* measureDecode(context, { numTokens: 1, numKeys, numLayers: layers });
    }
    const tile = quick ? 16 : 64;
    for (const numKeys of lengths.filter((length) => length <= 8192)) {
      yield* measurePrefill(context, { numTokens: tile, numKeys, numLayers: 1 });
    }
  },
};

/** Bytes of keys and values that one run reads, each row once. */
function cacheBytes({ numKeys, numLayers: layers }: AttentionCase, context: SuiteContext): number {
  return layers * 2 * sizeOf(context.options.kvDType, numKvHeads * numKeys * headDim);
}

function name({ numTokens, numKeys, numLayers: layers }: AttentionCase, { options }: SuiteContext): string {
  const width = layers === 1 ? '1 layer' : `${layers} layers`;
  return `${options.kvDType} T=${numTokens} ${numKeys} keys ${width}`;
}

async function* measureDecode(context: SuiteContext, attentionCase: AttentionCase): AsyncIterable<Figure> {
  const suite = 'attention';
  const { threads: threadCounts } = context.options;
  const { timings, amounts } = await measureCase(context, attentionCase, readOf);
  const bytes = cacheBytes(attentionCase, context);
  const [minThreads = 1] = threadCounts;
  for (const { label, ...side } of sidesOf(context)) {
    for (const threads of threadCounts) {
      const timing = timings[`work ${threads}${label}`]!;
      const caseName = `${name(attentionCase, context)}, ${threadsText(threads)}${label}`;
      const peak = `peak ${threads}${label}`;
      const memory = gigaPerSecond(amounts.get(peak)!, timings[peak]!).value;
      const rate = gigaPerSecond(bytes, timing);
      const ratioOf = `${readOf({ label, ...side })}, ${threadsText(threads)}`;
      yield { suite, case: caseName, ...rate, unit: 'GB/s', ratio: rate.value / memory, ratioOf };
      const base = timings[`work ${minThreads}${label}`]!.medianMs;
      const ideal = { ratio: timing.medianMs / (bytes / memory / 1e6), ratioOf: `reading the cache once, ${ratioOf}` };
      const scaling = { ratio: timing.medianMs / base, ratioOf: `the same, ${threadsText(minThreads)}` };
      yield {
        suite,
        case: caseName,
        ...milliseconds(timing),
        unit: 'ms',
        ...(threads === minThreads ? ideal : scaling),
      };
      if (side.isNative) yield gainOf(caseName, threads, rate, 'GB/s', timings);
    }
  }
}

const floatPeakOf = ({ isNative }: Side): ProbeName => (isNative ? 'native f32 fma' : 'f32 relaxed madd');

async function* measurePrefill(context: SuiteContext, attentionCase: AttentionCase): AsyncIterable<Figure> {
  const suite = 'attention';
  const { timings, amounts } = await measureCase(context, attentionCase, floatPeakOf);
  const { numTokens, numKeys } = attentionCase;
  const operations = 4 * numTokens * numHeads * numKeys * headDim;
  for (const side of sidesOf(context)) {
    for (const threads of context.options.threads) {
      const key = `${threads}${side.label}`;
      const rate = gigaPerSecond(operations, timings[`work ${key}`]!);
      const peak = gigaPerSecond(amounts.get(`peak ${key}`)!, timings[`peak ${key}`]!).value;
      const caseName = `${name(attentionCase, context)}, ${threadsText(threads)}${side.label}`;
      const ratioOf = `${floatPeakOf(side)}, ${threadsText(threads)}`;
      yield { suite, case: caseName, ...rate, unit: 'GFLOP/s', ratio: rate.value / peak, ratioOf };
      if (side.isNative) yield gainOf(caseName, threads, rate, 'GFLOP/s', timings);
    }
  }
}

/** A native kernel against that of WebAssembly. */
function gainOf(
  caseName: string,
  threads: number,
  rate: Rate,
  unit: string,
  timings: Readonly<Record<string, Timing>>,
): Figure {
  const [, native] = Object.entries(timings).find(([key]) => key.startsWith(`work ${threads},`)) as [string, Timing];
  const ratio = timings[`work ${threads}`]!.medianMs / native.medianMs;
  return {
    suite: 'attention',
    case: `${caseName}: gain`,
    ...rate,
    unit,
    ratio,
    ratioOf: `WebAssembly, ${threadsText(threads)}`,
  };
}

async function measureCase(context: SuiteContext, attentionCase: AttentionCase, peakFor: (side: Side) => ProbeName) {
  const { options, machine } = context;
  const contenders: Record<string, Contender> = {};
  const amounts = new Map<string, number>();
  const backends: Backend[] = [];
  for (const side of sidesOf(context)) {
    for (const threads of options.threads) {
      const backend = await context.createBackend(threads, 'workers', side.isNative);
      backends.push(backend);
      contenders[`work ${threads}${side.label}`] = await loadAttention(backend, attentionCase, context);
      const probe = await machine.probe(peakFor(side), threads);
      contenders[`peak ${threads}${side.label}`] = probe;
      amounts.set(`peak ${threads}${side.label}`, probe.amount);
    }
  }
  const timings = await measure(contenders, measureOptions(options, 9)).finally(async () => {
    for (const backend of backends) await backend.dispose();
  });
  return { timings, amounts };
}

async function loadAttention(
  backend: Backend,
  attentionCase: AttentionCase,
  { options }: SuiteContext,
): Promise<LoadedProgram> {
  const { numTokens, numKeys } = attentionCase;
  const rows = randomWeights(options.kvDType, 1, 3);
  const queries = randomWeights('f32', 1, 4);
  const loaded = await LoadedProgram.load(
    backend,
    attentionProgram(attentionCase, options.kvDType),
    (buffer, target) => {
      if (buffer === 'q') queries.fill(target);
      else if (buffer === 'slotPositions')
        new Int32Array(target.buffer, target.byteOffset, numKeys).set(sequence(numKeys));
      else rows.fill(target);
    },
    'y',
  );
  // all keys are visible to all queries of the tile, so that the number of operations is known
  loaded.scalars.slot('positions').fill(numKeys + numTokens);
  loaded.scalars.slot('sequences').fill(0);
  loaded.scalars.slot('contextLengths').fill(numKeys);
  loaded.scalars.slot('blockTable').set(sequence(Math.ceil(numKeys / blockSize)));
  return loaded;
}

function sequence(length: number): Int32Array {
  return Int32Array.from({ length }, (_, index) => index);
}

function attentionProgram(
  { numTokens, numKeys, numLayers: layers }: AttentionCase,
  dtype: SuiteContext['options']['kvDType'],
): Program {
  const b = new ProgramBuilder({});
  const numBlocks = Math.ceil(numKeys / blockSize);
  const q = b.external('q', 'kv', 'f32', [numTokens, numHeads, headDim]);
  const common = {
    positions: b.scalar('positions', [numTokens]),
    sequences: b.scalar('sequences', [numTokens]),
    contextLengths: b.scalar('contextLengths', [1]),
    blockTable: b.scalar('blockTable', [1, numBlocks]),
    slotPositions: b.external('slotPositions', 'kv', 'i32', [numBlocks, blockSize]),
  };
  const shape = [numBlocks, numKvHeads, blockSize, headDim];
  let y = q;
  for (let layer = 0; layer < layers; layer++) {
    b.setLayer(layer);
    const keys = b.external(`keys ${layer}`, 'kv', dtype, shape);
    const values = b.external(`values ${layer}`, 'kv', dtype, shape);
    y = b.activation('attention', { q, keys, values, ...common }, { scale: 1 / Math.sqrt(headDim) });
  }
  b.output('y', y);
  return b.build();
}
