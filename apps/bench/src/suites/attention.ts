import { ProgramBuilder, type Backend, type Program } from '@winnow/ops';
import { sizeOf } from '@winnow/tensor';
import { gigaPerSecond, milliseconds, type Figure } from '../harness/figure.js';
import { LoadedProgram } from '../harness/loaded-program.js';
import { measure, type Contender } from '../harness/measure.js';
import { measureOptions, threadsText, type Suite, type SuiteContext } from '../harness/suite.js';
import { randomWeights } from '../models/random-weights.js';

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
  const { timings, amounts } = await measureCase(context, attentionCase, 'memory read');
  const bytes = cacheBytes(attentionCase, context);
  const [fewest = 1] = threadCounts;
  for (const threads of threadCounts) {
    const timing = timings[`work ${threads}`]!;
    const caseName = `${name(attentionCase, context)}, ${threadsText(threads)}`;
    const memory = gigaPerSecond(amounts.get(threads)!, timings[`peak ${threads}`]!).value;
    const rate = gigaPerSecond(bytes, timing);
    const ratioOf = `memory read, ${threadsText(threads)}`;
    yield { suite, case: caseName, ...rate, unit: 'GB/s', ratio: rate.value / memory, ratioOf };
    const base = timings[`work ${fewest}`]!.medianMs;
    const ideal = { ratio: timing.medianMs / (bytes / memory / 1e6), ratioOf: `reading the cache once, ${ratioOf}` };
    const scaling = { ratio: timing.medianMs / base, ratioOf: `the same, ${threadsText(fewest)}` };
    yield { suite, case: caseName, ...milliseconds(timing), unit: 'ms', ...(threads === fewest ? ideal : scaling) };
  }
}

async function* measurePrefill(context: SuiteContext, attentionCase: AttentionCase): AsyncIterable<Figure> {
  const { timings, amounts } = await measureCase(context, attentionCase, 'f32 relaxed madd');
  const { numTokens, numKeys } = attentionCase;
  const operations = 4 * numTokens * numHeads * numKeys * headDim;
  for (const threads of context.options.threads) {
    const rate = gigaPerSecond(operations, timings[`work ${threads}`]!);
    const peak = gigaPerSecond(amounts.get(threads)!, timings[`peak ${threads}`]!).value;
    yield {
      suite: 'attention',
      case: `${name(attentionCase, context)}, ${threadsText(threads)}`,
      ...rate,
      unit: 'GFLOP/s',
      ratio: rate.value / peak,
      ratioOf: `f32 relaxed madd, ${threadsText(threads)}`,
    };
  }
}

async function measureCase(
  context: SuiteContext,
  attentionCase: AttentionCase,
  peak: 'memory read' | 'f32 relaxed madd',
) {
  const { options, machine } = context;
  const contenders: Record<string, Contender> = {};
  const amounts = new Map<number, number>();
  const backends: Backend[] = [];
  for (const threads of options.threads) {
    const backend = await context.createBackend(threads, 'workers');
    backends.push(backend);
    contenders[`work ${threads}`] = await loadAttention(backend, attentionCase, context);
    const probe = await machine.probe(peak, threads);
    contenders[`peak ${threads}`] = probe;
    amounts.set(threads, probe.amount);
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
