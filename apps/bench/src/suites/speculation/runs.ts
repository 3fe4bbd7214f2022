/** Generations whose tokens and times are compared. */
import type { GenerateOptions, Model, Session, Speculative } from '@winnow/engine';
import type { Figure } from '../../harness/figure.js';
import { median } from '../../harness/measure.js';

const suite = 'speculation';

/** One generation: its tokens, the time after each, and how many drafted tokens were accepted. */
export interface Run {
  readonly tokens: readonly number[];
  readonly timesMs: readonly number[];
  readonly numDraftedTokens: number;
  readonly numAcceptedTokens: number;
}

export async function generate(
  model: Pick<Model | Session, 'generate'>,
  prompt: string | readonly number[],
  speculative: Speculative,
  count: number,
  options: GenerateOptions = {},
): Promise<Run> {
  const tokens: number[] = [];
  const timesMs: number[] = [];
  let startMs = 0;
  const limits = { ignoreEos: true, maxTokens: count + 1, speculative };
  const generation = model.generate(prompt, { temperature: 0, ...options, ...limits });
  for await (const { tokenId } of generation) {
    if (startMs === 0) startMs = performance.now();
    else timesMs.push(performance.now() - startMs);
    tokens.push(tokenId);
  }
  const { numDraftedTokens = 0, numAcceptedTokens = 0 } = (await generation.result()).speculation ?? {};
  return { tokens, timesMs, numDraftedTokens, numAcceptedTokens };
}

/** @throws {Error} when a speculative generation differs from the plain one */
export function checkEqual(kind: string, plain: readonly Run[], drafted: readonly Run[]): number {
  const expected = String(plain[0]!.tokens);
  if ([...plain, ...drafted].some(({ tokens }) => String(tokens) !== expected)) {
    throw new Error(`${kind} generated other tokens than plain decoding`);
  }
  return drafted.reduce((sum, { tokens }) => sum + tokens.length, 0);
}

/** The acceptance rate of all generations, the ones that warm up included, as `stepFigures` has the steps of all. */
export function acceptanceFigure(task: string, runs: readonly Run[]): Figure {
  const sum = (field: 'numDraftedTokens' | 'numAcceptedTokens'): number =>
    runs.reduce((total, run) => total + run[field], 0);
  const numDrafted = sum('numDraftedTokens');
  const ratio = sum('numAcceptedTokens') / Math.max(1, numDrafted);
  const percent = { value: 100 * ratio, best: 100 * ratio, unit: '%', ratio };
  const name = `${task}: accepted in all ${runs.length} generations`;
  return { suite, case: name, ...percent, ratioOf: `${numDrafted} drafted tokens` };
}

/**
 * Times of the steps of all generations by the number of tokens that they gave: a step that gave one may have drafted some, too.
 * @param plainMs time of a plain step
 */
export function* stepFigures(task: string, runs: readonly Run[], plainMs: number): Iterable<[number, Figure]> {
  for (const [numTokens, samplesMs] of stepTimes(runs, plainMs / 4)) {
    const [value, best] = [median(samplesMs), Math.min(...samplesMs)];
    const count = (number: number, noun: string): string => `${number} ${noun}${number === 1 ? '' : 's'}`;
    const name = `${task}: ${count(samplesMs.length, 'step')} that gave ${count(numTokens, 'token')}`;
    yield [
      numTokens,
      { suite, case: name, value, best, unit: 'ms', ratio: value / plainMs, ratioOf: 'plain decoding' },
    ];
  }
}

/** Times of steps by the number of tokens they yielded, which arrive together. @param pauseMs minimum time of a step */
function stepTimes(runs: readonly Run[], pauseMs: number): ReadonlyMap<number, number[]> {
  const times = new Map<number, number[]>();
  for (const { timesMs } of runs) {
    let [lastMs, numTokens] = [0, 0];
    for (const [index, ms] of timesMs.entries()) {
      numTokens++;
      const nextMs = timesMs[index + 1];
      if (nextMs === undefined || nextMs - ms < pauseMs) continue;
      if (lastMs > 0) times.set(numTokens, [...(times.get(numTokens) ?? []), ms - lastMs]);
      [lastMs, numTokens] = [ms, 0];
    }
  }
  return new Map([...times].toSorted(([a], [b]) => a - b));
}
