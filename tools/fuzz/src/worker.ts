/** Runs the inputs of one target after the other in a worker, which the supervisor can end. */
import { on } from 'node:events';
import { parentPort } from 'node:worker_threads';
import { WinnowError } from '@winnow/tensor';
import { Inputs } from './inputs.ts';
import { setInput, type Finding, type Report, type WorkerSetup } from './protocol.ts';
import type { CreateTarget } from './target.ts';

const port = parentPort as NonNullable<typeof parentPort>;
let stray: unknown;
process.on('unhandledRejection', (error) => (stray = error));

/** What an input did, without the values that differ between inputs of a kind. */
function outcomeOf(error: unknown): string {
  if (error === undefined) return 'accepted';
  const { name, message } = error as Error;
  return `${name}: ${message.replaceAll(/"[^"]*"|'[^']*'|[\d.]+/g, '#').slice(0, 120)}`;
}

async function failureOf(run: Promise<void>): Promise<unknown> {
  try {
    await run;
    return undefined;
  } catch (error) {
    return error ?? new Error('an empty error');
  }
}

async function run(setup: WorkerSetup): Promise<void> {
  const { createTarget } = (await import(setup.module)) as { createTarget: CreateTarget };
  const target = await createTarget();
  const inputs = new Inputs(target, setup.corpus, setup.seed);
  const seen = new Set<string>();
  const endMs = performance.now() + setup.maxMs;
  const post = (report: Report): void => port.postMessage(report);
  stray = undefined;
  let index = setup.firstIndex;
  for (; index - setup.firstIndex < setup.maxInputs && performance.now() < endMs; index++) {
    const input = inputs.at(index);
    setInput(setup.state, index, input);
    const error = (await failureOf(target.run(input))) ?? stray;
    stray = undefined;
    const isTyped = error === undefined || WinnowError.isInstance(error);
    const outcome = outcomeOf(error);
    const isNew = !seen.has(outcome);
    seen.add(outcome);
    if (!isTyped && isNew) post({ kind: 'finding', ...findingOf(index, input, error) });
    if (isTyped && isNew && index >= inputs.numStarts) post({ kind: 'outcome', input });
  }
  post({ kind: 'done', numInputs: index - setup.firstIndex, numOutcomes: seen.size });
}

function findingOf(index: number, input: Uint8Array, error: unknown): Finding {
  return { index, input, reason: error instanceof Error ? String(error.stack) : String(error) };
}

for await (const [setup] of on(port, 'message')) await run(setup as WorkerSetup);
