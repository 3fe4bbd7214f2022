import { expect, it } from 'vitest';
import { createRecallCase, isRankQuestion } from './recall-case.js';
import { orderedShare } from './run-tasks.js';
import { taskNames, type RecallQuestion, type TaskForm } from './task-types.js';

const countTokens = (text: string): number => Math.ceil(text.length / 3);
const forms: readonly TaskForm[] = ['codes', 'general'];
const options = { length: 400, countTokens };

for (const form of forms) {
  for (const task of taskNames) {
    it(`${task}, ${form}: three questions that the text answers, reproducible by seed`, () => {
      const made = createRecallCase({ task, form, seed: 5, ...options });
      expect(made).toEqual(createRecallCase({ task, form, seed: 5, ...options }));
      expect(made.context).not.toBe(createRecallCase({ task, form, seed: 6, ...options }).context);
      expect(made.questions).toHaveLength(3);
      expect(countTokens(made.context)).toBeGreaterThan(300);
      // separators between sentences are not counted
      expect(countTokens(made.context)).toBeLessThan(420);
      for (const question of made.questions) {
        if (isRankQuestion(question)) {
          for (const word of [...question.right, ...question.wrong]) expect(made.context).toContain(word);
          continue;
        }
        expect(made.context).toContain(`${question.prompt}${question.answer}`.slice(-8).trim());
      }
    });
  }
}

it('a chain of values has a question per link', () => {
  const { context, questions } = createRecallCase({ task: 'variable-tracking', form: 'codes', seed: 1, ...options });
  const [first, second, third] = questions as RecallQuestion[];
  expect(context).toContain(`The code of${first.answer} is${second.answer}.`);
  expect(context).toContain(`The code of${second.answer} is${third.answer}.`);
  expect(second.prompt).toBe(`. The code of${first.answer} is`);
});

it('correct words are more frequent than wrong ones', () => {
  for (const task of ['common-words', 'frequent-words'] as const) {
    const { context, questions } = createRecallCase({ task, form: 'general', seed: 2, ...options });
    const count = (word: string): number => context.split(`is${word}.`).length - 1;
    for (const question of questions) {
      if (!isRankQuestion(question)) throw new Error('expected words to rank');
      const least = Math.min(...question.right.map(count));
      for (const word of question.wrong) expect(count(word)).toBeLessThan(least);
    }
  }
});

it('the answer is the most frequent of contradicting values', () => {
  const { context, questions } = createRecallCase({ task: 'common-words', form: 'codes', seed: 3, ...options });
  const [{ answer }] = questions as RecallQuestion[];
  expect(context.split(`is${answer}.`)).toHaveLength(7);
});

it('hard negatives share a prefix with the requested key', () => {
  const { context, questions } = createRecallCase({ task: 'hard-negatives', form: 'codes', seed: 4, ...options });
  const keys = [...context.matchAll(/The code of (\w+) is/g)].map(([, key]) => key);
  expect(new Set(keys).size).toBe(4);
  expect(new Set(keys.map((key) => key.slice(0, 1))).size).toBe(1);
  expect(keys).toContain(/What is the code of (\w+)\?/.exec(questions[0].prompt)?.[1]);
});

it('words are ranked by pairs', () => {
  expect(orderedShare([3, 1], [2, 0])).toBe(0.75); // 3 > 2, 3 > 0, 1 > 0
  expect(orderedShare([1], [1])).toBe(0.5);
  expect(orderedShare([], [1])).toBe(1);
});
