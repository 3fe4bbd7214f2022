import { ArgumentError } from '@winnow/tensor';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { createPenalties } from './penalties.js';
import { resolveSampling, type SamplingOptions } from './sampling-options.js';

const vocabSize = 6;
const penaltiesOf = (options: SamplingOptions) =>
  createPenalties(
    resolveSampling(options, {}, () => 0),
    vocabSize,
  );

test('counts cover the penalty window only, however long the text is', () => {
  fc.assert(
    fc.property(
      fc.array(fc.nat(vocabSize - 1), { maxLength: 40 }),
      fc.integer({ min: -1, max: 12 }),
      (tokens, penaltyWindow) => {
        const penalties = penaltiesOf({ frequencyPenalty: 1, presencePenalty: 0.5, penaltyWindow });
        for (const token of tokens) penalties.accept(token);
        const logits = new Float32Array(vocabSize);
        penalties.apply(logits);
        const recent = penaltyWindow < 0 ? tokens : tokens.slice(Math.max(0, tokens.length - penaltyWindow));
        logits.forEach((logit, id) => {
          const count = recent.filter((token) => token === id).length;
          expect(logit).toBe(count === 0 ? 0 : -0.5 - count);
        });
      },
    ),
  );
});

test('a window allocates nothing before the first token', () => {
  const penalties = penaltiesOf({ presencePenalty: 1, penaltyWindow: Number.MAX_SAFE_INTEGER });
  penalties.accept(3);
  const logits = new Float32Array(vocabSize);
  penalties.apply(logits);
  expect([...logits]).toEqual([0, 0, 0, -1, 0, 0]);
});

test.each([{}, { repetitionPenalty: 2, penaltyWindow: 0 }])('disabled: %o', (options) => {
  expect(penaltiesOf(options).isActive).toBe(false);
});

test('a bias is added before the penalties', () => {
  const sampling = resolveSampling({ repetitionPenalty: 2, penaltyWindow: 4 }, {}, () => 0);
  const penalties = createPenalties(sampling, vocabSize, { 1: 3, 4: -100 });
  penalties.accept(1);
  const logits = Float32Array.of(1, 1, 1, 1, 1, 1);
  penalties.apply(logits);
  expect([...logits]).toEqual([1, (1 + 3) / 2, 1, 1, 1 - 100, 1]);
});

test.each([{ 6: 1 }, { '-1': 1 }, { '': 1 }, { sea: 1 }, { 1.5: 1 }, { 1: NaN }])(
  'a bias of no token or no number is refused: %j',
  (bias) => {
    const sampling = resolveSampling({}, {}, () => 0);
    expect(() => createPenalties(sampling, vocabSize, bias)).toThrow(ArgumentError);
  },
);
