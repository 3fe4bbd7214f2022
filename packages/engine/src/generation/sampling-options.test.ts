import { expect, test } from 'vitest';
import { resolveSampling, type SamplingOptions } from './sampling-options.js';

test('the defaults are those of llama.cpp', () => {
  expect(resolveSampling({}, {}, () => 42)).toEqual({
    temperature: 0.8,
    topK: 40,
    topP: 0.95,
    minP: 0.05,
    repetitionPenalty: 1,
    presencePenalty: 0,
    frequencyPenalty: 0,
    penaltyWindow: 64,
    seed: 42,
  });
});

test('options of the caller override recommended values, which override defaults; undefined counts as absent', () => {
  const options = { temperature: 0.5, topP: undefined, minP: undefined } as unknown as SamplingOptions;
  const sampling = resolveSampling(options, { temperature: 0.6, topP: 0.9 }, () => 1);
  expect(sampling).toMatchObject({ temperature: 0.5, topP: 0.9, minP: 0.05 });
});

test('zero overrides a recommendation', () => {
  const zeros = { temperature: 0, topK: 0, minP: 0, penaltyWindow: 0, seed: 0 };
  const recommended = { temperature: 1, topK: 5, minP: 0.5 };
  expect(resolveSampling(zeros, recommended, () => 1)).toMatchObject(zeros);
});

test('options that are not about sampling are left out', () => {
  expect(resolveSampling({ maxTokens: 5, toString: 'x' } as SamplingOptions, {}, () => 1)).not.toHaveProperty(
    'maxTokens',
  );
});

test('a seed from the host is validated, too', () => {
  expect(() => resolveSampling({}, {}, () => 0.5)).toThrow('seed: expected an integer, got 0.5');
});
