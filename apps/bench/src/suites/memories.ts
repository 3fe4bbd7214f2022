/** Decoding with one model over different numbers of WebAssembly memories: the cost of crossing between them. */
import { createWasmBackend, type WasmBackend } from '@winnow/backend-wasm';
import { loadModel, type Model } from '@winnow/engine';
import { createRng, sizeOf } from '@winnow/tensor';
import { gigaPerSecond, milliseconds, perSecond, type Figure } from '../harness/figure.js';
import { measure, type Contender } from '../harness/measure.js';
import { measureOptions, threadsText, type Suite, type SuiteContext } from '../harness/suite.js';
import { modelShape } from '../models/model-shapes.js';
import { syntheticModel } from '../models/synthetic-model.js';
import { firstWordId } from '../models/synthetic-vocabulary.js';
import { greedy, modelCases, type ModelCase } from './end-to-end.js';
import { decodeBytes } from './model-cost.js';

const suite = 'memories';
const promptLength = 32;
/** Space for programs in each of the small memories. */
const reservedBytes = 2 ** 28;
const pageBytes = 2 ** 16;
/** A model that fits into one memory is compared with itself in about this many. */
const numSmall = 4;
/** Largest model of which two copies fit. */
const maxTwiceBytes = 5 * 2 ** 30;

interface Loaded {
  readonly backend: WasmBackend;
  readonly model: Model;
}

/** Regardless of the selected backend: only the WebAssembly backend has several memories. */
export const memories: Suite = {
  name: suite,
  summary: 'generation with models in one WebAssembly memory and in several, or larger than one: tokens per second',
  async *run(context) {
    for (const modelCase of modelCases(context)) yield* measureModel(context, modelCase);
  },
};

/** Measures the model in large memories, together with a copy in small ones if both fit. */
async function* measureModel(context: SuiteContext, { name, dtype }: ModelCase): AsyncIterable<Figure> {
  const { options, say } = context;
  const path = await syntheticModel(modelShape(name), dtype, options.modelsFolder, say);
  /** Loads the model with `room` bytes for weights and caches in each memory, or the maximum. */
  const load = async (room?: number): Promise<Loaded> => {
    const limits = room === undefined ? {} : { bytesPerMemory: room + reservedBytes, reservedBytes };
    const backend = await createWasmBackend({ numThreads: options.threads.at(-1) ?? 1, ...limits });
    say(`loading ${name} ${dtype}`);
    try {
      return { backend, model: await loadModel(path, { backend, context: 128, kvCache: { dtype: options.kvDType } }) };
    } catch (error) {
      await backend.dispose();
      throw error;
    }
  };
  const loaded = [await load()];
  try {
    const [{ backend }] = loaded as [Loaded];
    const { usedBytes } = backend;
    if (usedBytes < maxTwiceBytes) loaded.push(await load(Math.ceil(usedBytes / numSmall / pageBytes) * pageBytes));
    yield* compare(context, { name, dtype }, loaded);
  } finally {
    for (const { model, backend } of loaded) {
      await model.dispose();
      await backend.dispose();
    }
  }
}

/** Contenders that generate greedily; all must generate the same tokens. */
async function contendersOf(
  modelName: string,
  loaded: readonly Loaded[],
  numTokens: number,
): Promise<Record<string, Contender>> {
  const { vocabSize } = modelShape(modelName);
  const rng = createRng(11);
  const prompt = Array.from({ length: promptLength }, () => firstWordId + rng.nextInt(vocabSize - firstWordId));
  const texts: string[] = [];
  const contenders: Record<string, Contender> = {};
  for (const [index, each] of loaded.entries()) {
    const session = each.model.createSession();
    const run = async (): Promise<number> => {
      const { tokens, timeMs } = await greedy(session, prompt, numTokens);
      texts[index] = tokens.join();
      return timeMs;
    };
    await run();
    contenders[String(index)] = { run };
  }
  if (new Set(texts).size > 1) throw new Error(`${modelName}: tokens depend on the number of memories`);
  return contenders;
}

async function* compare(
  { options, machine }: SuiteContext,
  { name, dtype }: ModelCase,
  loaded: readonly Loaded[],
): AsyncIterable<Figure> {
  const threads = options.threads.at(-1) ?? 1;
  const count = options.quick ? 4 : 16;
  const contenders = await contendersOf(name, loaded, count);
  const memory = await machine.probe('memory read', threads);
  const timings = await measure({ ...contenders, memory }, { ...measureOptions(options, 5), warmups: 1 });
  const peak = gigaPerSecond(memory.amount, timings['memory']!).value;
  const [{ model }] = loaded as [Loaded];
  const { vocabSize, hiddenDim } = modelShape(name);
  const read = decodeBytes(model, sizeOf(dtype, vocabSize * hiddenDim), promptLength) * count;
  for (const [index, each] of loaded.entries()) {
    const timing = timings[String(index)]!;
    const many = each.backend.numMemories === 1 ? '1 memory' : `${each.backend.numMemories} memories`;
    const caseName = `${name} ${dtype}, ${threadsText(threads)}, ${many}`;
    const speed = perSecond(count, timing);
    const rate = gigaPerSecond(read, timing);
    const ratioOf = `memory read, ${threadsText(threads)}`;
    yield { suite, case: caseName, ...speed, unit: 'tokens/s', ratio: rate.value / peak, ratioOf };
    yield { suite, case: `${caseName}: weights read`, ...rate, unit: 'GB/s', ratio: rate.value / peak, ratioOf };
    if (index === 0) continue;
    const other = timings['0']!;
    const ratio = timing.medianMs / other.medianMs;
    const value = milliseconds(timing, count);
    const first = `${loaded[0]!.backend.numMemories} of them`;
    yield { suite, case: `${caseName}: time per token`, ...value, unit: 'ms', ratio, ratioOf: first };
  }
}
