import { CapacityError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { fitPrompt } from './prompt-fit.js';

const tokens = Int32Array.from({ length: 10 }, (_, index) => index);

test('a prompt that leaves room for a token is used unchanged', () => {
  expect(fitPrompt(tokens, 11, 'error')).toEqual({ tokens, numDropped: 0 });
});

test('error: names the needed and the available tokens', () => {
  expect(() => fitPrompt(tokens, 10, 'error')).toThrow(CapacityError);
  expect(() => fitPrompt(tokens, 10, 'error')).toThrow('context: needed 11 tokens, available 10 tokens');
});

test('truncate-start keeps the first token and the end', () => {
  const { tokens: kept, numDropped } = fitPrompt(tokens, 5, 'truncate-start');
  expect([...kept]).toEqual([0, 7, 8, 9]);
  expect(numDropped).toBe(6);
});

test('truncate-middle keeps both ends', () => {
  const { tokens: kept, numDropped } = fitPrompt(tokens, 6, 'truncate-middle');
  expect([...kept]).toEqual([0, 1, 2, 8, 9]);
  expect(numDropped).toBe(5);
});

test('policies that drop cached tokens leave the prompt unchanged', () => {
  for (const policy of ['slide', 'evict'] as const) {
    expect(fitPrompt(tokens, 5, policy)).toEqual({ tokens, numDropped: 0 });
    expect(() => fitPrompt(tokens, 1, policy)).toThrow(CapacityError);
  }
});

test('an unknown policy is rejected', () => {
  expect(() => fitPrompt(tokens, 5, 'start' as never)).toThrow(
    'overflow: expected stop | error | slide | evict | truncate-start',
  );
});
