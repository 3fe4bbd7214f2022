import { execFile } from 'node:child_process';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { loadModel, type LoadOptions, type Model, type Session } from '@winnow/engine';
import { kvBytesPerToken } from '@winnow/kv-cache';
import { createScalarBlock, ProgramBuilder, type Backend, type BufferHandle } from '@winnow/ops';
import type { DType } from '@winnow/tensor';
import { gigaPerSecond, milliseconds, perSecond, type Figure } from '../harness/figure.js';
import { measure, type Contender } from '../harness/measure.js';
import { measureOptions, threadsText, type Suite, type SuiteContext } from '../harness/suite.js';
import { hybridModel, numKvHeads, type HybridShape } from '../models/hybrid-model.js';
import { coldRead } from './cold-read.js';
import { longTokens, writeLongSession, type LongOutcome, type LongTask } from './long-run.js';

const suite = 'kv';
const dtypes: readonly DType[] = ['f32', 'f16', 'q8_0', 'q4_0'];
const mebibyte = 2 ** 20;

const shape: HybridShape = {
  hiddenDim: 128,
  ffnDim: 256,
  headDim: 64,
  numHeads: 2,
  numLayers: 6,
  attending: [2, 5],
  vocabSize: 1024,
};

/** One attention layer, so that 200K tokens with quadratic attention take minutes. */
const promptShape: HybridShape = { ...shape, headDim: 32, numLayers: 4, attending: [2] };

/** Like the attention layers of a hybrid model with 24 layers, 4 KiB per layer and token in f32: 4.9 GB at 200K. */
const largeShape: HybridShape = {
  ...shape,
  headDim: 256,
  numLayers: 24,
  attending: [3, 7, 11, 15, 19, 23],
};

/** The KV cache: bytes per token, and speed of appending, attention, and loading from lower tiers. */
export const kv: Suite = {
  name: suite,
  summary: 'KV cache: bytes per token, append, attention by tier, cold reads, contexts of 200K and 1M tokens',
  async *run(context) {
    const { modelsFolder, quick } = context.options;
    const path = await hybridModel(shape, modelsFolder);
    const folder = join(modelsFolder, '..', 'kv');
    await mkdir(folder, { recursive: true });
    yield* sizes(context, path);
    yield* appends(context);
    yield* tiers(context, path, folder);
    yield* coldReads(context, folder);
    if (context.options.backend === 'wasm' && !quick) yield* longRuns(context, path, folder);
  },
};

const largest = ({ options }: SuiteContext): number => options.threads.at(-1) ?? 1;

/** Bytes of the engine's buffers per slot, compared with the formula. */
async function* sizes(context: SuiteContext, path: string): AsyncIterable<Figure> {
  for (const kvDType of dtypes) {
    const backend = await context.createBackend(largest(context), 'default');
    const model = await loadModel(path, { context: 256, maxSessions: 1, kvCache: { dtype: kvDType }, backend });
    const { blockBytes, blockSize } = model.metrics().cache;
    await model.dispose();
    await backend.dispose();
    const { headDim, attending } = shape;
    const position = 4;
    const ofLayer = kvBytesPerToken({ numKvHeads, headDim, dtype: kvDType });
    const value = blockBytes / blockSize;
    const ratio = value / (attending.length * ofLayer + position);
    const ratioOf = 'layers x (keys + values) + position';
    yield { suite, case: `${kvDType} per token`, value, best: value, unit: 'bytes', ratio, ratioOf };
  }
}

/** Appends a chunk of a prompt. The rate refers to the f32 input. */
async function* appends(context: SuiteContext): AsyncIterable<Figure> {
  const threads = largest(context);
  const backend = await context.createBackend(threads, 'workers');
  const numTokens = context.options.quick ? 64 : 1024;
  const contenders: Record<string, Contender> = {};
  for (const dtype of dtypes) contenders[dtype] = await appendOf(backend, dtype, numTokens);
  const timings = await measure(contenders, measureOptions(context.options, 15));
  await backend.dispose();
  const bytes = numTokens * numAppendHeads * 128 * 2 * 4;
  const base = gigaPerSecond(bytes, timings['f32']!).value;
  for (const dtype of dtypes) {
    const rate = gigaPerSecond(bytes, timings[dtype]!);
    const name = `${dtype} append of ${numTokens} tokens, ${threadsText(threads)}`;
    yield { suite, case: name, ...rate, unit: 'GB/s', ratio: rate.value / base, ratioOf: 'f32' };
  }
}

const numAppendHeads = 8;

async function appendOf(backend: Backend, dtype: DType, numTokens: number): Promise<Contender> {
  const b = new ProgramBuilder({});
  const values = [numTokens, numAppendHeads, 128];
  const cache = [numTokens / 64, numAppendHeads, 64, 128];
  const [k, v] = [b.external('k', 'weights', 'f32', values), b.external('v', 'weights', 'f32', values)];
  const slots = b.scalar('slots', [numTokens]);
  const keys = b.external('keys', 'kv', dtype, cache);
  b.append('kv-append', { k, v, slots }, {}, { keys, values: b.external('values', 'kv', dtype, cache) });
  const program = b.build();
  const buffers = new Map<string, BufferHandle>();
  for (const { name, usage, sizeBytes } of program.buffers) {
    if (usage === 'weights' || usage === 'kv') buffers.set(name, backend.allocate({ sizeBytes, usage, label: name }));
  }
  const executable = await backend.prepare(program, { buffers, onUnsupported: 'error' });
  const scalars = createScalarBlock(program.scalars, program.symbols);
  scalars.slot('slots').set(Int32Array.from({ length: numTokens }, (_, index) => index));
  return { run: () => executable.run(scalars.words) };
}

const tierNames = ['hot', 'warm', 'cold'] as const;

/** One token after contexts of several lengths, with the KV cache in each of the tiers. */
async function* tiers(context: SuiteContext, path: string, folder: string): AsyncIterable<Figure> {
  const { options, say } = context;
  const lengths = options.contexts ?? (options.quick ? [1024] : [4096, 16384, 65536]);
  const numThreads = largest(context);
  for (const kvDType of options.quick ? dtypes.slice(0, 1) : dtypes) {
    for (const numTokens of lengths) {
      say(`kv: ${numTokens} tokens in ${kvDType}`);
      const sessionPath = join(folder, `tiers-${process.pid}.session`);
      const writer = await context.createBackend(numThreads, 'default');
      await writeLongSession({ path, kvDType, numTokens, numThreads }, sessionPath, writer);
      await writer.dispose();
      const opened: { readonly model: Model; readonly backend: Backend }[] = [];
      const contenders: Record<string, Contender> = {};
      let bytes = 0;
      for (const tier of tierNames) {
        const backend = await context.createBackend(numThreads, 'default');
        const model = await loadTier(path, backend, { tier, kvDType, numTokens, folder });
        opened.push({ model, backend });
        bytes = numTokens * (model.plan.kvBytesPerToken - 4);
        contenders[tier] = oneToken(await model.restoreSession(sessionPath), numTokens, model.config.vocabSize);
      }
      const timings = await measure(contenders, measureOptions(options, 7));
      for (const { model, backend } of opened) {
        await model.dispose();
        await backend.dispose();
      }
      await rm(sessionPath);
      const hot = timings['hot']!.medianMs;
      for (const tier of tierNames) {
        const timing = timings[tier]!;
        const caseName = `${kvDType} ${tier} @${numTokens}, ${threadsText(numThreads)}`;
        const ratio = hot / timing.medianMs;
        yield { suite, case: caseName, ...perSecond(1, timing), unit: 'tokens/s', ratio, ratioOf: 'hot' };
        yield {
          suite,
          case: `${caseName}: attended`,
          ...gigaPerSecond(bytes, timing),
          unit: 'GB/s',
          ratio,
          ratioOf: 'hot',
        };
      }
    }
  }
}

interface TierCase {
  readonly tier: (typeof tierNames)[number];
  readonly kvDType: DType;
  readonly numTokens: number;
  readonly folder: string;
}

function loadTier(path: string, backend: Backend, { tier, kvDType, numTokens, folder }: TierCase): Promise<Model> {
  const kvCache = { dtype: kvDType, prefixSharing: false };
  const common: LoadOptions = { context: numTokens + 64, maxSessions: 1, backend };
  const { headDim, attending } = shape;
  const ofLayer = kvBytesPerToken({ numKvHeads, headDim, dtype: kvDType });
  // so that blocks are offloaded in runs of the largest size when the context is much longer
  const budget = (numTokens < 16384 ? 12 : 132) * 64 * (attending.length * ofLayer + 4);
  if (tier === 'hot') return loadModel(path, { ...common, kvCache });
  const offload = tier === 'warm' ? { memory: 2 ** 30 } : { folder };
  return loadModel(path, { ...common, kvCache: { ...kvCache, budget, offload } });
}

/** Generates one token after the session's context, which then grows only by the token that is fed in. */
function oneToken(session: Session, numTokens: number, vocabSize: number): Contender {
  const tokens = [...longTokens(numTokens, vocabSize)];
  let next = 3;
  return {
    async run() {
      tokens.push(next);
      next = 3 + ((next * 7) % 64);
      const { timings } = await session.generate(tokens, { temperature: 0, ignoreEos: true, maxTokens: 1 }).result();
      return timings.promptMs;
    },
  };
}

async function* coldReads(context: SuiteContext, folder: string): AsyncIterable<Figure> {
  const { quick } = context.options;
  for (const pageBytes of quick ? [64 * 1024] : [256 * 1024, 512 * 1024, mebibyte]) {
    const { sizeBytes, contenders, dispose } = await coldRead(
      folder,
      pageBytes,
      ((quick ? 4 : 256) * mebibyte) / pageBytes,
    );
    try {
      const timings = await measure(contenders, measureOptions(context.options, 5));
      const disk = gigaPerSecond(sizeBytes, timings['disk']!);
      const rate = gigaPerSecond(sizeBytes, timings['pages']!);
      const name = `cold pages of ${pageBytes / 1024} KiB`;
      yield {
        suite,
        case: name,
        ...rate,
        unit: 'GB/s',
        ratio: rate.value / disk.value,
        ratioOf: 'the disk, read sequentially',
      };
    } finally {
      await dispose();
    }
  }
}

/** Each in a separate process, whose peak memory the system reports. */
async function* longRuns(context: SuiteContext, path: string, folder: string): AsyncIterable<Figure> {
  for (const [name, task] of Object.entries(await longTasks(context, path, folder))) {
    if (context.options.tokens?.includes(task.numTokens) === false) continue;
    context.say(`kv: ${name}`);
    const outcome = await runChild(task);
    context.addOwnMs(outcome.cpuMs);
    yield* memoryFigures(name, task, outcome);
    yield* speedFigures(name, task, outcome);
  }
}

async function longTasks(
  context: SuiteContext,
  path: string,
  folder: string,
): Promise<Readonly<Record<string, LongTask>>> {
  const promptPath = await hybridModel(promptShape, context.options.modelsFolder);
  const largePath = await hybridModel(largeShape, context.options.modelsFolder);
  const common = { path, folder, batchSize: 1024, numThreads: largest(context), numAsked: 256, numGenerated: 8 };
  // hot, warm and staging buffers are 1 GiB in total
  const large = {
    ...common,
    path: largePath,
    numTokens: 200_000,
    from: 'session',
    hotBytes: 256 * mebibyte,
    warmBytes: 704 * mebibyte,
  } as const;
  return {
    '200K tokens f32, prompt computed': {
      ...common,
      path: promptPath,
      numTokens: 200_000,
      from: 'prompt',
      kvDType: 'f32',
      hotBytes: 16 * mebibyte,
      warmBytes: 32 * mebibyte,
    },
    '200K tokens f16 in 6 layers': { ...large, kvDType: 'f16' },
    '200K tokens f32 in 6 layers': { ...large, kvDType: 'f32' },
    '200K tokens f32 in 6 layers, page-topk': { ...large, kvDType: 'f32', attention: 'decode=page-topk:budget=32' },
    '1M tokens q8_0, session restored': {
      ...common,
      numTokens: 2 ** 20,
      from: 'session',
      kvDType: 'q8_0',
      hotBytes: 32 * mebibyte,
      warmBytes: 64 * mebibyte,
    },
  };
}

const one = (value: number): { value: number; best: number } => ({ value, best: value });

function* memoryFigures(name: string, task: LongTask, outcome: LongOutcome): Iterable<Figure> {
  const budget = 2 ** 30;
  const inMemory = outcome.kvBytes + (outcome.tiers?.warmBytes ?? 0) + (outcome.tiers?.residentBytes ?? 0);
  yield {
    suite,
    case: `${name}: cache in memory`,
    ...one(inMemory),
    unit: 'bytes',
    ratio: inMemory / budget,
    ratioOf: '1 GiB',
  };
  const ratio = outcome.peakBytes / budget;
  yield {
    suite,
    case: `${name}: peak of the process`,
    ...one(outcome.peakBytes),
    unit: 'bytes',
    ratio,
    ratioOf: '1 GiB',
  };
  const whole = task.numTokens * outcome.kvBytesPerToken;
  const files = outcome.tiers?.coldBytes ?? 0;
  yield {
    suite,
    case: `${name}: in files`,
    ...one(files),
    unit: 'bytes',
    ratio: files / whole,
    ratioOf: 'the whole cache',
  };
}

function* speedFigures(name: string, task: LongTask, outcome: LongOutcome): Iterable<Figure> {
  const contextRate = (task.numTokens * 1000) / outcome.contextMs;
  const perToken = { medianMs: outcome.generateMs, minMs: outcome.generateMs, samplesMs: [] };
  const rate = perSecond(task.numGenerated, perToken);
  yield {
    suite,
    case: `${name}: context`,
    ...one(contextRate),
    unit: 'tokens/s',
    ratio: contextRate / rate.value,
    ratioOf: 'generated',
  };
  const askedRate = (task.numAsked * 1000) / outcome.askedMs;
  yield {
    suite,
    case: `${name}: question`,
    ...one(askedRate),
    unit: 'tokens/s',
    ratio: askedRate / rate.value,
    ratioOf: 'generated',
  };
  const waited = (outcome.tiers?.waitedMs ?? 0) / (outcome.contextMs + outcome.askedMs + outcome.generateMs);
  yield {
    suite,
    case: `${name}: generated`,
    ...rate,
    unit: 'tokens/s',
    ratio: waited,
    ratioOf: 'share of the run spent waiting for pages',
  };
  const time = milliseconds(perToken, task.numGenerated);
  const readRatio = outcome.generateReadBytes / task.numGenerated / (task.numTokens * outcome.kvBytesPerToken);
  yield {
    suite,
    case: `${name}: a token`,
    ...time,
    unit: 'ms',
    ratio: readRatio,
    ratioOf: 'read from files, as a share of the whole cache',
  };
}

async function runChild(task: LongTask): Promise<LongOutcome> {
  const isSource = import.meta.url.endsWith('.ts');
  const child = fileURLToPath(new URL(isSource ? './long-run-child.ts' : './long-run-child.js', import.meta.url));
  const { stdout } = await promisify(execFile)(process.execPath, [child, JSON.stringify(task)]);
  return JSON.parse(stdout) as LongOutcome;
}
