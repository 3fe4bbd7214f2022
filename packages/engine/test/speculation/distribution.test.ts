/** Tokens that were drawn while drafts were verified have the distribution of plain decoding: every id of a small vocabulary is counted. */
import { createWasmBackend } from '@winnow/backend-wasm';
import { fastClock, testCoverage } from '@winnow/test-utils';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { loadModel, type Model, type SamplingOptions, type Speculative } from '../../src/index.js';
import { tinyLlama } from '../support/tiny-llama.js';

const vocabSize = 8;
const prompt = [1, 5, 2, 7, 1, 5, 3, 1, 5];
/** The first token follows the prompt, and the next three belong to plain steps, which measure what drafts cost. */
const maxTokens = 7;
const numTexts = testCoverage === 'full' ? 3000 : 200;

const off = { temperature: 1, topK: 0, topP: 1, minP: 0 } as const;
const samplers: Readonly<Record<string, SamplingOptions>> = {
  temperature: { ...off, temperature: 1.4 },
  'top-k': { ...off, topK: 5 },
  'top-p': { ...off, topP: 0.8 },
  'min-p': { ...off, minP: 0.15 },
  'repetition penalty': { ...off, repetitionPenalty: 1.5 },
  'presence penalty': { ...off, presencePenalty: 0.7 },
  'frequency penalty': { ...off, frequencyPenalty: 0.4, penaltyWindow: 6 },
  'all of them': {
    ...{ temperature: 0.9, topK: 7, topP: 0.95, minP: 0.05 },
    ...{ repetitionPenalty: 1.2, presencePenalty: 0.3, frequencyPenalty: 0.2, penaltyWindow: -1 },
  },
};
const kinds = ['self', 'lookup'] as const;

let model: Model;
beforeAll(async () => {
  model = await loadModel(await tinyLlama({ vocab_size: vocabSize }), {
    createBackend: () => createWasmBackend({ numThreads: 1, maxMemoryBytes: 2 ** 27 }),
    ...{ context: 64, maxSessions: 1, kvCache: { prefixSharing: false }, now: fastClock() },
    speculative: 'self=streaming:window=8,sinks=1',
  });
});
afterAll(() => model.dispose());

/** How often the last token of a text was each id. */
async function countsOf(sampling: SamplingOptions, speculative: Speculative, firstSeed: number): Promise<number[]> {
  const counts = new Array<number>(vocabSize).fill(0);
  let numAccepted = 0;
  for (let seed = firstSeed; seed < firstSeed + numTexts; seed++) {
    const options = { ...sampling, seed, speculative, maxTokens, ignoreEos: true };
    const { tokens, speculation } = await model.generate(prompt, options).result();
    counts[tokens.at(-1) as number]!++;
    numAccepted += speculation?.numAcceptedTokens ?? 0;
  }
  expect(numAccepted > 0).toBe(speculative !== 'off');
  return counts;
}

/** Pearson's statistic of two samples of the same size. Ids with fewer than ten tokens are one class. */
function chiSquared(plain: readonly number[], drafted: readonly number[]): { statistic: number; degrees: number } {
  const classes: [a: number, b: number][] = [];
  const rare: [a: number, b: number] = [0, 0];
  for (const [id, a] of plain.entries()) {
    const b = drafted[id] as number;
    if (a + b >= 10) classes.push([a, b]);
    else [rare[0], rare[1]] = [rare[0] + a, rare[1] + b];
  }
  if (rare[0] + rare[1] > 0) classes.push(rare);
  const statistic = classes.reduce((sum, [a, b]) => sum + (a - b) ** 2 / (a + b), 0);
  return { statistic, degrees: classes.length - 1 };
}

/**
 * 99.9 % quantile of chi-squared with `degrees` degrees of freedom, by Wilson and Hilferty: d (1 - 2/(9d) + 3.0902 sqrt(2/(9d)))^3.
 */
function chiSquaredLimit(degrees: number): number {
  const variance = 2 / (9 * degrees);
  return degrees * (1 - variance + 3.0902 * Math.sqrt(variance)) ** 3;
}

test.each(Object.keys(samplers))(
  '%s: drafts of self and lookup keep the distribution',
  { timeout: 300_000 },
  async (name) => {
    const sampling = samplers[name] as SamplingOptions;
    const plain = await countsOf(sampling, 'off', 0);
    for (const [index, kind] of kinds.entries()) {
      // other seeds: with the same ones the texts would be equal
      const drafted = await countsOf(sampling, kind, (index + 1) * numTexts);
      const { statistic, degrees } = chiSquared(plain, drafted);
      expect(degrees, kind).toBeGreaterThan(1);
      expect(statistic, kind).toBeLessThan(chiSquaredLimit(degrees));
    }
  },
);

test('the statistic tells samplers apart', async () => {
  const [warm, cold] = [
    await countsOf(samplers['temperature'] as SamplingOptions, 'off', 0),
    await countsOf({ ...off, temperature: 0.5 }, 'self', numTexts),
  ];
  const { statistic, degrees } = chiSquared(warm, cold);
  expect(statistic).toBeGreaterThan(chiSquaredLimit(degrees));
});
