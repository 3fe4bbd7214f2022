import { createRng } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import type { ReadOutput } from '../memory/step-outputs.js';
import { Sampler } from './sampler.js';
import { resolveSampling, type SamplingOptions } from './sampling-options.js';
import { Verifier } from './verifier.js';

const vocabSize = 5;
/** Logits of the next token after each token: a Markov chain. */
const chain = [
  [1, 0.5, -1, 0, 2],
  [0, 2, 1, -0.5, 0.3],
  [0.7, -1, 0.2, 1.5, 0],
  [2, 0, 0, 0.4, -2],
  [0.1, 1.1, 0.6, -0.3, 0.9],
];

function outputsAfter(token: number): ReadOutput {
  const logits = chain[token]!;
  const order = logits.map((_, id) => id).sort((a, b) => logits[b]! - logits[a]!);
  const outputs: Record<string, readonly number[]> = {
    logits,
    topIndices: order,
    topValues: order.map((id) => logits[id]!),
    logSumExp: [Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit), 0))],
  };
  return async (output, target) => target.set(outputs[output]!.slice(0, target.length));
}

function verifierOf({ logitBias, ...options }: Settings): Verifier {
  const sampling = resolveSampling(options, {}, () => 0);
  return new Verifier({
    sampler: new Sampler(sampling, vocabSize, vocabSize, false, logitBias),
    constraint: undefined,
    numTopLogprobs: 0,
    accept: () => ({ text: '', isShown: true, ending: undefined }),
    explain: (error) => Promise.reject(error as Error),
  });
}

/** Generates `count` tokens after token 0 in steps with these drafts. */
async function generate(verifier: Verifier, count: number, draftOf: () => readonly number[]): Promise<number[]> {
  const tokens = [0];
  while (tokens.length <= count) {
    const draft = draftOf();
    const path = [tokens.at(-1)!, ...draft];
    const numRight = await verifier.begin(1, draft)((row) => outputsAfter(path[row]!));
    expect(numRight).toBe(verifier.picks.length);
    tokens.push(...verifier.picks.map(({ token }) => token.tokenId));
  }
  return tokens.slice(1, count + 1);
}

type Settings = SamplingOptions & { readonly logitBias?: Readonly<Record<number, number>> };

const softmax: Settings = { temperature: 1, topK: 0, topP: 1, minP: 0 };
const penalties: Settings = {
  ...{ temperature: 1.1, topK: 0, topP: 1, minP: 0, penaltyWindow: 2 },
  ...{ repetitionPenalty: 1.5, presencePenalty: 0.3, frequencyPenalty: 0.2 },
};
const settings: Readonly<Record<string, Settings>> = {
  softmax,
  temperature: { ...softmax, temperature: 0.6 },
  'top-k': { ...softmax, topK: 3 },
  'top-p': { ...softmax, topP: 0.85 },
  'min-p': { ...softmax, minP: 0.2 },
  'all samplers': { temperature: 0.8, topK: 4, topP: 0.95, minP: 0.08 },
  'repetition penalty': { ...softmax, repetitionPenalty: 1.5, penaltyWindow: 1 },
  'presence penalty': { ...softmax, presencePenalty: 1, penaltyWindow: -1 },
  'frequency penalty': { ...softmax, frequencyPenalty: 0.5 },
  penalties,
  'all samplers and penalties, a bias': { ...penalties, topK: 4, topP: 0.95, minP: 0.08, logitBias: { 2: 1.5 } },
};

describe('verification', () => {
  test.each(Object.keys(settings))('%s: the tokens of one seed do not depend on the drafts', async (name) => {
    const rng = createRng(2);
    for (let seed = 0; seed < 20; seed++) {
      const options = { ...settings[name], seed };
      const plain = await generate(verifierOf(options), 12, () => []);
      const drafts = () => Array.from({ length: rng.nextInt(6) }, () => rng.nextInt(vocabSize));
      expect(await generate(verifierOf(options), 12, drafts)).toEqual(plain);
    }
  });

  /**
   * Two samples from the same distribution over `k` cells have a statistic of mean k - 1 and variance 2 (k - 1); six standard
   * deviations above the mean are exceeded with a probability below 1e-6 for these k.
   */
  test.each(Object.keys(settings))('%s: pairs of tokens have the distribution of plain decoding', async (name) => {
    const numSamples = 1500;
    const rng = createRng(3);
    const countPairs = async (firstSeed: number, draftOf: () => readonly number[]): Promise<number[]> => {
      const counts = new Array<number>(vocabSize ** 2).fill(0);
      for (let sample = 0; sample < numSamples; sample++) {
        const verifier = verifierOf({ ...settings[name], seed: firstSeed + sample });
        const [first, second] = await generate(verifier, 2, draftOf);
        counts[first! * vocabSize + second!]!++;
      }
      return counts;
    };
    const plain = await countPairs(0, () => []);
    const drafted = await countPairs(numSamples, () => [rng.nextInt(vocabSize), rng.nextInt(vocabSize)]);
    const cells = plain.map((count, cell) => [count, drafted[cell]!] as const).filter(([a, b]) => a + b > 0);
    const statistic = cells.reduce((sum, [a, b]) => sum + (a - b) ** 2 / (a + b), 0);
    const degrees = cells.length - 1;
    expect(statistic).toBeLessThan(degrees + 6 * Math.sqrt(2 * degrees));
  });
});

describe('the last token, and failures', () => {
  test('tokens after the end of the text are not chosen, even where the draft goes on', async () => {
    const sampling = resolveSampling({ temperature: 0 }, {}, () => 0);
    let numAccepted = 0;
    const verifier = new Verifier({
      sampler: new Sampler(sampling, vocabSize, vocabSize),
      constraint: undefined,
      numTopLogprobs: 0,
      accept: () => ({ text: '', isShown: true, ending: ++numAccepted === 2 ? 'stop' : undefined }),
      explain: (error) => Promise.reject(error as Error),
    });
    const best = (token: number): number => chain[token]!.indexOf(Math.max(...chain[token]!));
    const draft = [best(0), best(best(0)), best(best(best(0)))];
    const path = [0, ...draft];
    expect(await verifier.begin(1, draft)((row) => outputsAfter(path[row]!))).toBe(2);
    expect(verifier.picks.map(({ token }) => token.tokenId)).toEqual(draft.slice(0, 2));
  });

  test('a read that fails is repeated after the tokens that were chosen before', async () => {
    const options = { ...settings['penalties'], seed: 4 };
    const [first, second] = await generate(verifierOf(options), 2, () => []);
    const verifier = verifierOf(options);
    const read = verifier.begin(1, [first!, 0]);
    const path = [0, first!, 0];
    let failures = 1;
    const rows = (row: number): ReadOutput => {
      if (row === 1 && failures-- > 0) return () => Promise.reject(new Error('lost'));
      return outputsAfter(path[row]!);
    };
    await expect(read(rows)).rejects.toThrow('lost');
    expect(await read(rows)).toBe(verifier.picks.length);
    expect(verifier.picks.slice(0, 2).map(({ token }) => token.tokenId)).toEqual([first, second]);
  });
});
