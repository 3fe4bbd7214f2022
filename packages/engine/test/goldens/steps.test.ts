/**
 * Models with experts, chunks, shared keys and recurrent states, step by step without sessions: against the float64 log-probabilities
 * with two sequences in every step, and continuing from a state that an earlier step left in another row.
 */
import { type Backend } from '@winnow/ops';
import { sampled } from '@winnow/test-utils';
import { describe, expect, test } from 'vitest';
import { useBackends } from '../support/backends.js';
import { archPath, decodeFloats, maxDifference, readJson } from '../support/golden-files.js';
import { openSteps, type Part, type StepRun } from '../support/step-harness.js';

const names = [
  'mixtral',
  'qwen2moe',
  'qwen3moe',
  'olmoe',
  'lfm2',
  'lfm2moe',
  'qwen35',
  'qwen35moe',
  'qwen3next',
  'granitehybrid-moe',
  'llama4',
  'gemma3n',
  'gemma4',
  'gemma4-moe',
  'falcon-h1-norm',
  'mamba2-groups',
  'falcon-mamba',
];
const limit = 5e-4;

interface Golden {
  readonly prompts: readonly { readonly tokens: readonly number[]; readonly positions: readonly number[] }[];
}
interface Exact {
  readonly logprobs: readonly (readonly string[])[];
}

const backends = useBackends();

const cases = names.flatMap((name) => [[name, 'model.gguf'] as const, [name, 'hf'] as const]);

/** Runs two prompts in steps of different sizes; each state alternates between two rows. @returns log-probabilities by prompt and token */
async function runPair(steps: StepRun, pair: Golden['prompts']): Promise<Float32Array[][]> {
  const found = pair.map((): Float32Array[] => []);
  for (let round = 0; pair.some(({ tokens }, i) => (found[i] as Float32Array[]).length < tokens.length); round++) {
    const parts: Part[] = [];
    const members: number[] = [];
    for (const [i, { tokens }] of pair.entries()) {
      const begin = (found[i] as Float32Array[]).length;
      const next = tokens.slice(begin, begin + (i === 0 ? 7 : 1 + ((round * 5) % 23)));
      if (next.length === 0) continue;
      const rows = [2 * i + (round % 2), 2 * i + ((round + 1) % 2)] as const;
      parts.push({ tokens: next, begin, firstBlock: 16 * i, from: begin === 0 ? -1 : rows[0], to: rows[1] });
      members.push(i);
    }
    for (const [at, logprobs] of (await steps.run(parts)).entries()) {
      (found[members[at] as number] as Float32Array[]).push(...logprobs);
    }
  }
  return found;
}

describe.each(cases)('%s/%s', (name, file) => {
  const [path, goldenPath, exactPath] = [file, 'golden.json', 'exact.json'].map((part) => archPath(name, part));
  const isMissing = path === undefined || goldenPath === undefined || exactPath === undefined;

  // weights are the same in both files
  test.skipIf(isMissing).each(sampled(['WebAssembly', 'reference'], file === 'hf' ? 2 : 1))(
    `two sequences at a time on the %s backend${isMissing ? ' (needs ../shared/data/goldens)' : ''}`,
    async (backendName) => {
      const { prompts } = readJson<Golden>(goldenPath as string);
      const exact = readJson<Exact>(exactPath as string);
      const steps = await openSteps(path as string, backends[backendName] as Backend);
      // the prompts of 61 and 150 tokens
      const pair = [2, 3].map((index) => ({ index, ...(prompts[index] as Golden['prompts'][number]) }));
      const found = await runPair(steps, pair);
      let worst = 0;
      for (const [i, { index, positions }] of pair.entries()) {
        for (const [at, position] of positions.entries()) {
          const expected = decodeFloats(exact.logprobs[index]?.[at] as string);
          const difference = maxDifference((found[i] as Float32Array[])[position] as Float32Array, expected);
          if (!(difference <= worst)) worst = difference;
        }
      }
      expect(worst).toBeLessThan(limit);
      await steps.close();
    },
  );

  test.skipIf(isMissing)('a kept state can be continued from again', async () => {
    const { prompts } = readJson<Golden>(goldenPath as string);
    const tokens = (prompts[2] as Golden['prompts'][number]).tokens.slice(0, 24);
    const steps = await openSteps(path as string, backends['WebAssembly'] as Backend);
    const part = (begin: number, end: number, from: number, to: number): Part => ({
      tokens: tokens.slice(begin, end),
      begin,
      firstBlock: 0,
      from,
      to,
    });
    await steps.run([part(0, 10, -1, 0)]);
    const [first] = await steps.run([part(10, 24, 0, 1)]);
    await steps.run([{ ...part(10, 17, 0, 2), tokens: tokens.slice(0, 7) }]);
    const [again] = await steps.run([part(10, 24, 0, 3)]);
    expect(again).toEqual(first);
    // continuing from another state gives other logits
    if (steps.hasStates) {
      const [other] = await steps.run([part(10, 24, 2, 3)]);
      expect(
        maxDifference((other as Float32Array[])[0] as Float32Array, (first as Float32Array[])[0] as Float32Array),
      ).toBeGreaterThan(1e-3);
    }
    await steps.close();
  });
});
