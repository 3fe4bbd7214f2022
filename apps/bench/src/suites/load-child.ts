/**
 * A separate process that loads a model and answers once, because memory freed by earlier models slows down later ones. Reads its
 * task as JSON from the arguments and prints the result as JSON.
 */
import { loadModel } from '@winnow/engine';
import type { NativeChoice } from '@winnow/native';
import { createBackend, type BackendName } from '../harness/backends.js';
import { greedy } from './end-to-end.js';

export interface LoadTask {
  readonly path: string;
  readonly backend: BackendName;
  readonly native: NativeChoice;
  readonly numThreads: number;
  readonly contextSize: number;
  readonly prompt: readonly number[];
}

export interface LoadOutcome {
  readonly timeMs: number;
  readonly cpuMs: number;
  /** Milliseconds of each part of the time, in this order. */
  readonly phasesMs: Readonly<Record<LoadPhase, number>>;
}

export type LoadPhase = 'opening' | 'reading' | 'preparing' | 'first token';

async function loadAndAnswer(task: LoadTask): Promise<LoadOutcome> {
  const startMs = performance.now();
  const backend = await createBackend(task.backend, task.numThreads, 'default', task.native);
  let firstReadMs = 0;
  let lastReadMs = 0;
  const onProgress = (): void => {
    lastReadMs = performance.now();
    firstReadMs ||= lastReadMs;
  };
  const model = await loadModel(task.path, { backend, context: task.contextSize, onProgress });
  const loadedMs = performance.now();
  await greedy(model.createSession(), task.prompt, 1);
  const endMs = performance.now();
  await model.dispose();
  await backend.dispose();
  const { user, system } = process.cpuUsage();
  const phasesMs = {
    opening: firstReadMs - startMs,
    reading: lastReadMs - firstReadMs,
    preparing: loadedMs - lastReadMs,
    'first token': endMs - loadedMs,
  };
  return { timeMs: endMs - startMs, cpuMs: (user + system) / 1000, phasesMs };
}

const outcome = await loadAndAnswer(JSON.parse(process.argv[2] ?? '') as LoadTask);
process.stdout.write(`${JSON.stringify(outcome)}\n`);
