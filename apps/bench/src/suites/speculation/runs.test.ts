import { expect, test } from 'vitest';
import { acceptanceFigure, stepFigures, type Run } from './runs.js';

/** Three tokens of a step at 20 ms, one at 30, two at 45 and one at 55. */
const drafted: Run = {
  tokens: [1, 2, 3, 4, 5, 6, 7],
  timesMs: [20, 20, 20, 30, 45, 45, 55],
  numDraftedTokens: 5,
  numAcceptedTokens: 3,
};
const plain: Run = { ...drafted, timesMs: [10, 20, 30, 40, 50, 60, 70], numDraftedTokens: 0, numAcceptedTokens: 0 };
const other: Run = { ...drafted, numDraftedTokens: 3, numAcceptedTokens: 3 };

test('runs: the acceptance rate is that of the drafted tokens of all generations', () => {
  const expected = { case: 'copying: accepted in all 3 generations', value: 75, ratio: 0.75 };
  expect(acceptanceFigure('copying', [drafted, plain, other])).toMatchObject(expected);
  expect(acceptanceFigure('copying', [plain])).toMatchObject({ value: 0, ratioOf: '0 drafted tokens' });
});

test('runs: steps are pooled by the number of tokens that they gave', () => {
  const figures = [...stepFigures('copying', [drafted, plain], 10)];
  expect(figures.map(([numTokens, { case: name, value, ratio }]) => [numTokens, name, value, ratio])).toEqual([
    [1, 'copying: 6 steps that gave 1 token', 10, 1],
    [2, 'copying: 1 step that gave 2 tokens', 15, 1.5],
  ]);
});
