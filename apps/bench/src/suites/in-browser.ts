/** Winnow and wllama in two pages of one headless Chromium: the same file, context and number of threads, in turns. */
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { createRng, type DType } from '@winnow/tensor';
import { BrowserProgram, type ProgramOptions } from '../browser/browser-program.js';
import type { PageResult } from '../browser/page-protocol.js';
import { launchChromium } from '../browser/chromium.js';
import { descendantsCpuMs } from '../peer/process-tree.js';
import { perSecond, type Figure } from '../harness/figure.js';
import { measure, type Timing } from '../harness/measure.js';
import { measureOptions, threadsText, type SuiteContext } from '../harness/suite.js';
import { modelShape } from '../models/model-shapes.js';
import { syntheticModel } from '../models/synthetic-model.js';
import { installWllama } from '../peer/install.js';

interface ModelCase {
  readonly name: string;
  readonly dtype: DType;
}

interface Programs {
  /** Model, dtype, threads and browser, for the names of cases. */
  readonly name: string;
  readonly winnow: BrowserProgram;
  readonly wllama: BrowserProgram;
  dispose(): Promise<void>;
}

export async function* decodeInBrowser(context: SuiteContext, modelCase: ModelCase): AsyncIterable<Figure> {
  const { options, say } = context;
  const lengths = (options.contexts ?? (options.quick ? [16, 64] : [128, 2048])).toSorted((a, b) => a - b);
  const count = options.quick ? 4 : 16;
  const programs = await openPrograms(context, modelCase, Math.max(...lengths) + count);
  try {
    for (const length of lengths) {
      say(`${programs.name}: context of ${length} tokens`);
      const prompt = promptOf(length);
      const contender = async (program: BrowserProgram) => {
        // from the second run on, only the last token of the prompt is computed: `count` steps in total
        await program.decode(prompt, count);
        return { run: () => inTurn(async () => timeOf(program, 1, await program.decode(prompt, count))) };
      };
      const winnow = await contender(programs.winnow);
      const wllama = await contender(programs.wllama);
      const timings = await measure({ winnow, wllama }, { ...measureOptions(options, 7), warmups: 1 });
      yield* figuresOf('decode', `${programs.name} @${length}`, count, timings);
    }
  } finally {
    await programs.dispose();
  }
}

/** @throws {Error} when the program has not computed the requested tokens */
function timeOf({ name }: BrowserProgram, numWanted: number, { timeMs, numComputed }: PageResult): number {
  if (numComputed === numWanted) return timeMs;
  throw new Error(`${name} computed ${numComputed} tokens of the prompt instead of ${numWanted}`);
}

/**
 * A prompt of `numTokens` tokens of the synthetic vocabulary: a begin token, a space, and letters. wllama accepts only
 * text.
 * @param index prompts of different indices differ in their first two letters
 */
function promptOf(numTokens: number, index = 0): string {
  const rng = createRng(11);
  const letters = Array.from({ length: numTokens - 2 }, () => rng.nextInt(26));
  letters.splice(0, 2, index % 26, Math.floor(index / 26) % 26);
  return letters.map((letter) => String.fromCharCode(97 + letter)).join('');
}

/** The threads of the previous program spin before they sleep, which would slow down the next one. */
async function inTurn(time: () => Promise<number>): Promise<number> {
  await sleep(250);
  return time();
}

export async function* prefillInBrowser(context: SuiteContext, modelCase: ModelCase): AsyncIterable<Figure> {
  const { options } = context;
  const lengths = options.tokens ?? (options.quick ? [32] : [128, 2048]);
  const programs = await openPrograms(context, modelCase, Math.max(...lengths) + 1);
  // every prompt has a unique beginning, so that cached prefixes do not help
  let numPrompts = 0;
  try {
    for (const length of lengths) {
      const contender = (program: BrowserProgram) => ({
        run: () => inTurn(async () => timeOf(program, length, await program.prefill(promptOf(length, numPrompts++)))),
      });
      const winnow = contender(programs.winnow);
      const wllama = contender(programs.wllama);
      const rounds = length > 1024 ? 3 : 5;
      const timings = await measure({ winnow, wllama }, { ...measureOptions(options, rounds), warmups: 1 });
      yield* figuresOf('prefill', `${programs.name} @${length}`, length, timings);
    }
  } finally {
    await programs.dispose();
  }
}

function* figuresOf(
  suite: string,
  caseName: string,
  count: number,
  timings: Readonly<Record<string, Timing>>,
): Generator<Figure> {
  const own = perSecond(count, timings['winnow']!);
  const other = perSecond(count, timings['wllama']!);
  const unit = 'tokens/s';
  yield { suite, case: caseName, ...own, unit, ratio: own.value / other.value, ratioOf: 'wllama' };
  yield { suite, case: `${caseName}: wllama`, ...other, unit, ratio: other.value / own.value, ratioOf: 'winnow' };
}

/** Installs what is missing, starts Chromium and loads the model in both pages. */
async function openPrograms(context: SuiteContext, { name, dtype }: ModelCase, contextSize: number): Promise<Programs> {
  const { options, say } = context;
  const threads = options.threads.at(-1) ?? 1;
  const shape = modelShape(name);
  const closers: (() => Promise<void>)[] = [];
  const dispose = async (): Promise<void> => {
    for (const close of closers.toReversed()) await close();
  };
  try {
    const cpuMsBefore = descendantsCpuMs();
    const browser = await launchChromium();
    closers.push(async () => {
      context.addOwnMs(descendantsCpuMs() - cpuMsBefore);
      await browser.close();
    });
    const modelPath = await syntheticModel(shape, dtype, options.modelsFolder, say);
    const modulePath = await installWllama(options.peerFolder, say);
    const { kvDType, attention, batchSize, peerFlash: flashAttention } = options;
    const load = { contextSize, threads, kvDType, attention, batchSize, flashAttention };
    const open = async (program: ProgramOptions): Promise<BrowserProgram> => {
      say(`loading ${name} ${dtype} in Chromium: ${program.name}`);
      const opened = await BrowserProgram.open(browser, program);
      closers.push(() => opened.dispose());
      return opened;
    };
    const winnow = await open({ name: 'winnow', page: 'winnow-page', modelPath, files: {}, load });
    const wasmPath = join(dirname(modulePath), 'wasm', 'wllama.wasm');
    const files = { '/wllama/index.js': modulePath, '/wllama/wllama.wasm': wasmPath };
    const wllama = await open({ name: 'wllama', page: 'wllama-page', modelPath, files, load });
    const [version = ''] = browser.version().split('.');
    const parts = [`${name} ${dtype}`, attention, threadsText(threads), `Chromium ${version}`];
    return {
      name: parts.filter((part) => part !== undefined).join(', '),
      winnow,
      wllama,
      dispose,
    };
  } catch (error) {
    await dispose();
    throw error;
  }
}
