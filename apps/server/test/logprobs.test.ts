import type { Model } from '@winnow/engine';
import { expect, test } from 'vitest';
import { CompletionLogprobWriter } from '../src/requests/logprobs.js';

/** Tokens 0 and 1 are halves of a character, so that both have the text U+FFFD. */
const bytes = [Uint8Array.of(0xc3), Uint8Array.of(0xa4), Uint8Array.of(97)];
const tokenizer = { vocabSize: 3, tokenBytes: (id: number) => bytes[id] } as unknown as Model['tokenizer'];

test('of tokens with the same text the most probable one is reported, and the token itself always', () => {
  const writer = new CompletionLogprobWriter(tokenizer);
  const topLogprobs = [
    { tokenId: 0, logprob: -1 },
    { tokenId: 1, logprob: -2 },
  ];
  const { top_logprobs: top } = writer.write([
    { tokenId: 1, logprob: -2, topLogprobs },
    { tokenId: 2, logprob: -3, topLogprobs },
  ]);
  expect(top).toEqual([{ '\uFFFD': -1 }, { '\uFFFD': -1, a: -3 }]);
});
