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
