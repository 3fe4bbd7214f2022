import { describe, expect, test } from 'vitest';
import { noClass } from './drafter.js';
import { LookupDrafter } from './lookup-drafter.js';

function draftAfter(tokens: readonly number[], maxTokens: number) {
  const drafter = new LookupDrafter(100);
  for (const token of tokens) drafter.accept(token);
  const draftClass = drafter.find();
  return { draftClass, tokens: draftClass === noClass ? [] : drafter.draft(maxTokens) };
}

describe('lookup', () => {
  test('repeats what followed the longest match, not the latest shorter one', () => {
    // the last three tokens occurred once, the last two again later
    expect(draftAfter([1, 2, 3, 50, 51, 9, 2, 3, 60, 61, 1, 2, 3], 2).tokens).toEqual([50, 51]);
  });

  test('prefers the latest of equally long matches', () => {
    expect(draftAfter([1, 2, 50, 1, 2, 60, 7, 1, 2], 1).tokens).toEqual([60]);
  });

  test('continues a period beyond the end of the text', () => {
    expect(draftAfter([1, 2, 3, 1, 2, 3, 1, 2], 7).tokens).toEqual([3, 1, 2, 3, 1, 2, 3]);
  });

  test('drafts nothing after a single known token, at the start, and where the pair is new', () => {
    for (const tokens of [[], [1], [1, 2], [5, 1, 6, 1]]) expect(draftAfter(tokens, 3).tokens).toEqual([]);
  });

  test('grows beyond its first capacity', () => {
    const tokens = Array.from({ length: 1000 }, (_, index) => index % 97);
    expect(draftAfter(tokens, 3).tokens).toEqual([1000 % 97, 1001 % 97, 1002 % 97]);
  });

  test('classes distinguish short and long matches', () => {
    const short = draftAfter([1, 2, 50, 9, 1, 2], 1);
    const long = draftAfter([1, 2, 3, 4, 5, 6, 7, 8, 50, 9, 1, 2, 3, 4, 5, 6, 7, 8], 1);
    expect(short.draftClass).toBeLessThan(long.draftClass);
  });
});
