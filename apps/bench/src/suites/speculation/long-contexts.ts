/**
 * Self-speculation under a sparse policy over contexts whose keys and values are expensive to read, in memory (`--contexts`) and in
 * tiers (`--tokens`). Their contents are meaningless, but their speed is realistic.
 */
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { loadModel, type KvCacheOptions } from '@winnow/engine';
import { milliseconds, perSecond, type Figure } from '../../harness/figure.js';
import { measure, type Timing } from '../../harness/measure.js';
import { measureOptions, threadsText, type SuiteContext } from '../../harness/suite.js';
import { modelShape } from '../../models/model-shapes.js';
import { syntheticModel } from '../../models/synthetic-model.js';
import { modelCases, type ModelCase } from '../end-to-end.js';
import { longTokens, writeLongSession } from '../long-run.js';
import { acceptanceFigure, checkEqual, generate, stepFigures, type Run } from './runs.js';

const suite = 'speculation';
const policy = 'streaming:window=256,sinks=4';
/** Drafts of random weights would never be accepted; of this gain, 65 % were at 200,000 tokens in tiers, and none at 65,536. */
const attentionGain = 0.001;
const mebibyte = 2 ** 20;
/** Hot, warm and staging buffers are 1 GiB in total. */
const tiersOf = (folder: string): KvCacheOptions => ({
  budget: 256 * mebibyte,
  offload: { memory: 704 * mebibyte, folder },
});
/** Acceptance rates of the table of gains. */
const rates = [0.5, 0.6, 0.7, 0.8, 0.9, 1] as const;

interface LongCase extends ModelCase {
  readonly numTokens: number;
  readonly isTiered: boolean;
}

/** Models of `--models` with contexts of `--contexts` and `--tokens`. */
export async function* longContexts(context: SuiteContext): AsyncIterable<Figure> {
  const { contexts, tokens, quick } = context.options;
  const inMemory = contexts ?? (tokens === undefined ? [quick ? 1024 : 65_536] : []);
  for (const modelCase of modelCases(context)) {
    for (const numTokens of inMemory) yield* measureLong(context, { ...modelCase, numTokens, isTiered: false });
    for (const numTokens of tokens ?? []) yield* measureLong(context, { ...modelCase, numTokens, isTiered: true });
  }
}

async function* measureLong(context: SuiteContext, longCase: LongCase): AsyncIterable<Figure> {
  const { options, say } = context;
  const { name, dtype, numTokens, isTiered } = longCase;
  const threads = options.threads.at(-1) ?? 1;
  const path = await syntheticModel(modelShape(name), dtype, options.modelsFolder, say, attentionGain);
  const folder = join(options.modelsFolder, '..', 'speculation');
  await mkdir(folder, { recursive: true });
  const sessionPath = join(folder, `${process.pid}.session`);
  say(`writing ${numTokens} tokens in ${options.kvDType}`);
  const writer = await context.createBackend(threads, 'default');
  await writeLongSession({ path, kvDType: options.kvDType, numTokens, numThreads: threads }, sessionPath, writer);
  await writer.dispose();
  const backend = await context.createBackend(threads, 'default');
  const count = options.quick ? 24 : 96;
  const tiers = isTiered ? tiersOf(folder) : {};
  const kvCache = { dtype: options.kvDType, prefixSharing: false, ...tiers };
  const size = { context: numTokens + 2 * count, maxSessions: 1, kvCache };
  const model = await loadModel(path, { backend, ...size, speculative: `self=${policy}` });
  try {
    const session = await model.restoreSession(sessionPath);
    const prompt = longTokens(numTokens, model.config.vocabSize);
    const runs: Record<'plain' | 'self', Run[]> = { plain: [], self: [] };
    const contender = (kind: 'plain' | 'self') => ({
      run: async (): Promise<number> => {
        const run = await generate(session, prompt, kind === 'plain' ? 'off' : kind, count);
        runs[kind].push(run);
        return run.timesMs.at(-1)!;
      },
    });
    const warmups = { ...measureOptions(options, 3), warmups: 1 };
    const timings = await measure({ plain: contender('plain'), self: contender('self') }, warmups);
    checkEqual('self', runs.plain, runs.self);
    const place = isTiered ? ' in tiers' : '';
    const task = `self, ${name} ${dtype}, ${numTokens} tokens in ${options.kvDType}${place}, ${threadsText(threads)}`;
    yield* figuresOf(task, count, timings, runs);
  } finally {
    await model.dispose();
    await backend.dispose();
    await rm(sessionPath, { force: true });
  }
}

function* figuresOf(
  task: string,
  count: number,
  timings: Readonly<Record<string, Timing>>,
  runs: Readonly<Record<'plain' | 'self', readonly Run[]>>,
): Iterable<Figure> {
  const [plain, drafted] = [perSecond(count, timings['plain']!), perSecond(count, timings['self']!)];
  const figure = { suite, ratioOf: 'plain decoding' };
  yield { ...figure, case: task, ...drafted, unit: 'tokens/s', ratio: drafted.value / plain.value };
  yield acceptanceFigure(task, runs.self);
  const plainMs = milliseconds(timings['plain']!, count);
  yield { ...figure, case: `${task}: a plain step`, ...plainMs, unit: 'ms', ratio: 1 };
  for (const [numTokens, step] of stepFigures(task, runs.self, plainMs.value)) {
    yield step;
    if (numTokens > 1) yield* gains(task, numTokens, 1 / step.ratio);
  }
}

/**
 * The gain at other acceptance rates, if the steps that gave `numTokens` had drafted one less, and drafted tokens are accepted
 * independently. Steps that drafted more make it too low.
 * @param ratio time of a plain step divided by the time of this step
 */
function* gains(task: string, numTokens: number, ratio: number): Iterable<Figure> {
  for (const rate of rates) {
    const expected = rate === 1 ? numTokens : (1 - rate ** numTokens) / (1 - rate);
    const value = expected * ratio;
    const name = `${task}: steps that gave ${numTokens} tokens, if ${100 * rate} % were accepted`;
    yield { suite, case: name, value, best: value, unit: 'times', ratio: value, ratioOf: 'plain decoding, computed' };
  }
}
