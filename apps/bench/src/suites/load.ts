/** Loading a model whose file is in the page cache, until the first token of a short prompt. */
import { execFile } from 'node:child_process';
import { open } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Figure } from '../harness/figure.js';
import { measure, timingOf, type Contender } from '../harness/measure.js';
import { measureOptions, threadsText, type Suite, type SuiteContext } from '../harness/suite.js';
import { modelShape } from '../models/model-shapes.js';
import { syntheticModel } from '../models/synthetic-model.js';
import { firstWordId } from '../models/synthetic-vocabulary.js';
import { installPeer } from '../peer/install.js';
import { startPeer } from '../peer/peer.js';
import { modelCases, type ModelCase } from './end-to-end.js';
import type { LoadOutcome, LoadTask } from './load-child.js';

const suite = 'load';
const contextSize = 512;
const prompt = [0, 1, 2, 3].map((index) => firstWordId + index);

export const load: Suite = {
  name: suite,
  summary: 'loading a model from the page cache, until the first token of a short prompt',
  async *run(context) {
    for (const modelCase of modelCases(context)) yield* measureModel(context, modelCase);
  },
};

async function* measureModel(context: SuiteContext, { name, dtype }: ModelCase): AsyncIterable<Figure> {
  const { options, say } = context;
  const threads = options.threads.at(-1) ?? 1;
  const modelPath = await syntheticModel(modelShape(name), dtype, options.modelsFolder, say);
  const outcomes: LoadOutcome[] = [];
  const loadOnce = async (): Promise<number> => {
    const outcome = await loadOwn(context, modelPath, threads);
    outcomes.push(outcome);
    return outcome.timeMs;
  };
  const contenders: Record<string, Contender> = {
    winnow: { run: loadOnce },
    file: { run: () => readFile(modelPath) },
  };
  const peerName = 'node-llama-cpp';
  if (options.peer === peerName) {
    const modulePath = await installPeer(options.peerFolder, say);
    contenders[peerName] = { run: () => loadPeer(context, modulePath, modelPath, threads) };
  }
  const measuring = measureOptions(options, 5);
  const timings = await measure(contenders, measuring);
  const { medianMs: value, minMs: best } = timings['winnow']!;
  const figure = { suite, case: `${name} ${dtype}, ${threadsText(threads)}`, unit: 'ms' };
  yield {
    ...figure,
    value,
    best,
    ratio: value / timings['file']!.medianMs,
    ratioOf: 'reading the file into new memory',
  };
  const other = timings[peerName];
  if (other !== undefined) yield { ...figure, value, best, ratio: value / other.medianMs, ratioOf: peerName };
  const measured = outcomes.slice(measuring.warmups);
  for (const phase of ['opening', 'reading', 'preparing', 'first token'] as const) {
    const { medianMs, minMs } = timingOf(measured.map(({ phasesMs }) => phasesMs[phase]));
    const part = { case: `${figure.case}: ${phase}`, value: medianMs, best: minMs };
    yield { ...figure, ...part, ratio: medianMs / value, ratioOf: 'the whole time' };
  }
}

/** Loads Winnow in a new process, whose start is not part of the time. */
async function loadOwn(
  { options, nativeLevel, addOwnMs }: SuiteContext,
  path: string,
  numThreads: number,
): Promise<LoadOutcome> {
  const { backend } = options;
  const task: LoadTask = { path, backend, native: nativeLevel ?? false, numThreads, contextSize, prompt };
  const file = import.meta.url.endsWith('.ts') ? './load-child.ts' : './load-child.js';
  const child = fileURLToPath(new URL(file, import.meta.url));
  const { stdout } = await promisify(execFile)(process.execPath, [child, JSON.stringify(task)]);
  const outcome = JSON.parse(stdout) as LoadOutcome;
  addOwnMs(outcome.cpuMs);
  return outcome;
}

/** Loads the peer, also in a new process. */
async function loadPeer(
  { addOwnMs }: SuiteContext,
  modulePath: string,
  modelPath: string,
  threads: number,
): Promise<number> {
  const settings = { modelPath, contextSizes: [contextSize], threads, flashAttention: false };
  const peer = await startPeer(modulePath, settings);
  try {
    const { timeMs } = await peer.prefill(prompt);
    addOwnMs(peer.cpuMs);
    return peer.loadMs + timeMs;
  } finally {
    await peer.dispose();
  }
}

/** A lower bound for engines that copy the weights to their memory: reading the file on one thread. */
async function readFile(path: string): Promise<number> {
  const startMs = performance.now();
  const file = await open(path);
  try {
    const { size } = await file.stat();
    const bytes = new Uint8Array(new SharedArrayBuffer(size));
    for (let filled = 0; filled < size;) {
      const { bytesRead } = await file.read(bytes, filled, Math.min(2 ** 26, size - filled), filled);
      if (bytesRead === 0) throw new Error(`${path} ends early`);
      filled += bytesRead;
    }
    return performance.now() - startMs;
  } finally {
    await file.close();
  }
}
