/** Lookup over the recorded outputs of `pnpm bench speculation`, with step costs that it measured: no clock is read. */
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { DraftLength } from '../../src/generation/speculation/draft-length.js';
import { LookupDrafter } from '../../src/generation/speculation/lookup-drafter.js';

interface Trace {
  readonly prompt: readonly number[];
  readonly output: readonly number[];
}

type Costs = readonly (readonly [numTokens: number, cost: number])[];

interface Recorded {
  /** Costs of steps in plain ones, from docs/benchmarks/speculation.md; those between are interpolated. */
  readonly costs: Readonly<Record<string, Costs>>;
  readonly traces: Readonly<Record<string, Trace>>;
}

const vocabSize = 2048;
const maxDrafted = 15;
const { costs, traces } = JSON.parse(
  readFileSync(new URL('../fixtures/speculation/bench-traces.json', import.meta.url), 'utf8'),
) as Recorded;

function costOf(measured: Costs, numTokens: number): number {
  let [size, cost] = [1, 1];
  for (const [nextSize, nextCost] of measured) {
    if (numTokens <= nextSize) return cost + ((nextCost - cost) * (numTokens - size)) / (nextSize - size);
    [size, cost] = [nextSize, nextCost];
  }
  return cost;
}

/** Times after each token of the output, in plain steps. */
function replay({ prompt, output }: Trace, measured: Costs): readonly number[] {
  const drafter = new LookupDrafter(vocabSize);
  const length = new DraftLength();
  for (const token of [...prompt, ...output.slice(0, 1)]) drafter.accept(token);
  const times: number[] = [];
  for (let time = 0, next = 1; next < output.length;) {
    const found = drafter.find();
    const count = found === 0 ? 0 : length.choose(found, 1, Math.min(maxDrafted, output.length - next - 1));
    if (found !== 0 && count === 0) length.noteUndrafted(found, drafter.draft(1)[0] === output[next]);
    const draft = count === 0 ? [] : [...drafter.draft(count)];
    let numAccepted = 0;
    while (numAccepted < count && draft[numAccepted] === output[next + numAccepted]) numAccepted++;
    const cost = costOf(measured, 1 + count);
    time += cost;
    length.noteStep(count === 0 ? 0 : found, 1, count, numAccepted, cost);
    for (let index = 0; index <= numAccepted; index++) {
      drafter.accept(output[next++] as number);
      times.push(time);
    }
  }
  return times;
}

/** As the bench computes it: any 64 tokens, also those that begin or end within a step. */
function lowestSpeed(times: readonly number[]): number {
  const speeds = times.slice(63).map((time, begin) => 64 / (time - (times[begin - 1] ?? 0)));
  return Math.min(...speeds);
}

const cases = Object.keys(costs).flatMap((kernels) =>
  Object.keys(traces)
    .filter((trace) => trace.startsWith(kernels.split(' ')[0] as string))
    .map((trace) => [kernels, trace] as const),
);

test.each(cases)('%s kernels, %s: never below 0.97 over any 64 tokens', (kernels, trace) => {
  const times = replay(traces[trace] as Trace, costs[kernels] as Costs);
  expect(lowestSpeed(times)).toBeGreaterThanOrEqual(0.97);
});

test.each([
  ['f16 WebAssembly', 'f16 copying', 2],
  ['f16 native', 'f16 copying', 2],
  ['f16 WebAssembly', 'f16 repetition', 2],
  ['q8_0 native', 'q8_0 copying', 1.13],
])('%s kernels, %s: at least %s times as fast', (kernels, trace, least) => {
  const times = replay(traces[trace] as Trace, costs[kernels] as Costs);
  expect(times.length / (times.at(-1) as number)).toBeGreaterThan(least);
});
