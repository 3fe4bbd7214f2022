import { createRng, NonFiniteError } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import { Sampler } from './sampler.js';
import { resolveSampling, type SamplingOptions } from './sampling-options.js';
import type { ReadOutput } from '../memory/step-outputs.js';

/** The outputs that a backend computes from these logits. */
function outputsOf(logits: readonly number[]): ReadOutput {
  const order = logits.map((_, id) => id).sort((a, b) => logits[b]! - logits[a]! || a - b);
  const max = Math.max(...logits);
  const outputs: Record<string, readonly number[]> = {
    logits,
    topIndices: order,
    topValues: order.map((id) => logits[id]!),
    logSumExp: [max + Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - max), 0))],
  };
  return (output, target) => {
    target.set(outputs[output]!.slice(0, target.length));
    return Promise.resolve();
  };
}

const neutral: SamplingOptions = { temperature: 1, topK: 0, topP: 1, minP: 0, seed: 1 };

function samplerOf(options: SamplingOptions, vocabSize: number, numTop = vocabSize): Sampler {
  return new Sampler(
    resolveSampling(options, {}, () => 0),
    vocabSize,
    numTop,
  );
}

/** Relative frequencies of `numDraws` choices from the same logits. */
async function frequencies(options: SamplingOptions, logits: readonly number[], numDraws: number): Promise<number[]> {
  const sampler = samplerOf(options, logits.length);
  const counts = logits.map(() => 0);
  for (let draw = 0; draw < numDraws; draw++) counts[(await sampler.choose(outputsOf(logits))).tokenId]!++;
  return counts.map((count) => count / numDraws);
}

/** Six standard deviations of a frequency of `numDraws` draws at its widest, probability 1/2. */
const spread = (numDraws: number): number => 6 * Math.sqrt(0.25 / numDraws);

const logits = [1, 3, 2, -1, 0];
const weights = logits.map(Math.exp);
const total = weights.reduce((sum, weight) => sum + weight, 0);

describe('softmax and truncation', () => {
  test('draws follow the softmax', async () => {
    const found = await frequencies(neutral, logits, 4000);
    found.forEach((frequency, id) => expect(Math.abs(frequency - weights[id]! / total)).toBeLessThan(spread(4000)));
  });

  test('temperature sharpens: p^(1/T)', async () => {
    const found = await frequencies({ ...neutral, temperature: 0.5 }, logits, 4000);
    const sharp = weights.map((weight) => weight ** 2);
    const sum = sharp.reduce((a, b) => a + b, 0);
    found.forEach((frequency, id) => expect(Math.abs(frequency - sharp[id]! / sum)).toBeLessThan(spread(4000)));
  });

  test.each([
    ['top-k keeps the k best', { topK: 2 }, [1, 2]],
    ['top-p keeps the smallest set that reaches p', { topP: weights[1]! / total + 0.01 }, [1, 2]],
    ['top-p keeps one when that is enough', { topP: 0.1 }, [1]],
    ['min-p compares with the best', { minP: Math.exp(-1) * 0.999 }, [1, 2]],
    ['all cuts together', { topK: 4, topP: 0.99, minP: Math.exp(-2) * 0.999 }, [0, 1, 2]],
  ] as const)('%s', async (_name, cuts, kept) => {
    const found = await frequencies({ ...neutral, ...cuts }, logits, 800);
    const chosen = found.flatMap((frequency, id) => (frequency > 0 ? [id] : []));
    expect(chosen).toEqual(kept);
  });

  test('greedy takes the most probable token, ties by lowest id, and reports its log-probability', async () => {
    const choice = await samplerOf({ temperature: 0 }, 4).choose(outputsOf([0, 2, 2, 1]));
    expect(choice.tokenId).toBe(1);
    expect(choice.logprob).toBeCloseTo(2 - Math.log(1 + 2 * Math.exp(2) + Math.exp(1)), 5);
  });
});

test('log-probabilities ignore penalties, also when penalties change the order', async () => {
  const sampler = samplerOf({ temperature: 0, repetitionPenalty: 4 }, 3);
  sampler.accept(1);
  const { tokenId, logprob } = await sampler.choose(outputsOf([1.5, 2, 0]));
  expect(tokenId).toBe(0);
  const sum = Math.exp(1.5) + Math.exp(2) + 1;
  expect(logprob).toBeCloseTo(1.5 - Math.log(sum), 5);
  // the chosen token is penalized from now on; log-probabilities are not
  const again = await sampler.choose(outputsOf([3, 0.5, 0]));
  expect(again.tokenId).toBe(0);
  expect(again.logprob).toBeCloseTo(3 - Math.log(Math.exp(3) + Math.exp(0.5) + 1), 5);
});

describe('with a mask', () => {
  const mask = Uint32Array.of(0b11010); // 1, 3, 4
  const masked = (options: SamplingOptions, numTop = logits.length): Sampler =>
    new Sampler(
      resolveSampling(options, {}, () => 0),
      logits.length,
      numTop,
      true,
    );

  test('draws follow the softmax over allowed tokens', async () => {
    const sampler = masked(neutral);
    const counts = logits.map(() => 0);
    for (let draw = 0; draw < 4000; draw++) counts[(await sampler.choose(outputsOf(logits), mask)).tokenId]!++;
    const sum = weights[1]! + weights[3]! + weights[4]!;
    for (const [id, count] of counts.entries()) {
      const share = [1, 3, 4].includes(id) ? weights[id]! / sum : 0;
      expect(Math.abs(count / 4000 - share)).toBeLessThan(share === 0 ? Number.MIN_VALUE : spread(4000));
    }
  });

  test('greedy takes the most probable allowed token, even if none of the top tokens is allowed', async () => {
    const only = async (bits: number, numTop: number, options: SamplingOptions = {}) =>
      masked({ temperature: 0, ...options }, numTop).choose(outputsOf(logits), Uint32Array.of(bits));
    expect((await only(0b11101, 5)).tokenId).toBe(2);
    expect((await only(0b11001, 2)).tokenId).toBe(0);
    expect((await only(0b01000, 1)).tokenId).toBe(3);
    expect((await only(0b11001, 2, { frequencyPenalty: 1 })).tokenId).toBe(0);
    const { tokenId, logprob } = await only(0b01000, 1);
    expect(logprob).toBeCloseTo(Math.log(weights[tokenId]! / total), 5);
  });

  test('topK counts allowed tokens', async () => {
    const sampler = masked({ ...neutral, topK: 2 });
    const found = new Set<number>();
    for (let draw = 0; draw < 200; draw++) found.add((await sampler.choose(outputsOf(logits), mask)).tokenId);
    expect([...found].sort()).toEqual([1, 4]);
  });
});

describe('log-probabilities and penalties', () => {
  test('the log-probability is computed before penalties and temperature', async () => {
    const sampler = samplerOf({ temperature: 0, presencePenalty: 5 }, 3);
    sampler.accept(0);
    const choice = await sampler.choose(outputsOf([2, 1, 0]));
    expect(choice.tokenId).toBe(1);
    expect(choice.logprob).toBeCloseTo(1 - Math.log(Math.exp(2) + Math.exp(1) + 1), 5);
  });

  test('penalties: repetition scales, presence subtracts once, frequency per count, the window limits all three', async () => {
    const choose = async (options: SamplingOptions, accepted: readonly number[], logits: readonly number[]) => {
      const sampler = samplerOf({ temperature: 0, ...options }, logits.length);
      for (const id of accepted) sampler.accept(id);
      return (await sampler.choose(outputsOf(logits))).tokenId;
    };
    expect(await choose({ repetitionPenalty: 2 }, [0], [3, 2])).toBe(1); // 1.5 < 2
    expect(await choose({ repetitionPenalty: 2 }, [0], [-1, -1.5])).toBe(1); // -2 < -1.5
    expect(await choose({ presencePenalty: 0.5 }, [0, 0, 0], [1, 0.4])).toBe(0); // 0.5 > 0.4
    expect(await choose({ frequencyPenalty: 0.5 }, [0, 0, 0], [1, 0.4])).toBe(1); // -0.5 < 0.4
    expect(await choose({ presencePenalty: 5, penaltyWindow: 1 }, [0, 1], [1, 0.9])).toBe(0); // 0 has left the window
    expect(await choose({ presencePenalty: 5, penaltyWindow: -1 }, [0, 2], [1, 0.9, 0])).toBe(1);
  });
});

describe('seeds and errors', () => {
  test('sampling from the top tokens gives the same draws as sampling from all logits', async () => {
    const rng = createRng(7);
    const few = samplerOf({ seed: 3 }, 200, 64);
    const all = samplerOf({ seed: 3 }, 200, 8); // top-k of 40 exceeds the 8 top tokens, so the sampler reads all logits
    for (let step = 0; step < 50; step++) {
      const outputs = outputsOf(Array.from({ length: 200 }, () => rng.nextGaussian() * 3));
      expect((await few.choose(outputs)).tokenId).toBe((await all.choose(outputs)).tokenId);
    }
  });

  test('the same seed gives the same draws, another seed different ones', async () => {
    const run = async (seed: number): Promise<number[]> => {
      const sampler = samplerOf({ ...neutral, seed }, 50);
      const ids: number[] = [];
      const flat = outputsOf(Array.from({ length: 50 }, () => 0));
      for (let i = 0; i < 20; i++) ids.push((await sampler.choose(flat)).tokenId);
      return ids;
    };
    expect(await run(5)).toEqual(await run(5));
    expect(await run(5)).not.toEqual(await run(6));
  });

  test('NaN logits are a typed error', async () => {
    await expect(samplerOf(neutral, 2).choose(outputsOf([NaN, 1]))).rejects.toThrow(NonFiniteError);
  });

  test.each([
    [{ temperature: -1 }, 'temperature: expected a number from 0, got -1'],
    [{ temperature: NaN }, 'temperature: expected a number from 0, got NaN'],
    [{ topK: 1.5 }, 'topK: expected an integer from 0, got 1.5'],
    [{ topP: 0 }, 'topP: expected a number above 0, at most 1, got 0'],
    [{ minP: 2 }, 'minP: expected a number from 0 to 1, got 2'],
    [{ repetitionPenalty: 0 }, 'repetitionPenalty: expected a positive number, got 0'],
    [{ seed: 0.5 }, 'seed: expected an integer, got 0.5'],
  ])('rejects %o', (options, message) => {
    expect(() => resolveSampling(options, {}, () => 0)).toThrow(message);
  });
});
