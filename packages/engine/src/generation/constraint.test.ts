import type { Tokenizer } from '@winnow/tokenizers';
import { afterEach, expect, test, vi } from 'vitest';
import { Constraints } from './constraint.js';

afterEach(() => vi.useRealTimers());

/** A vocabulary of the ASCII characters; each compilation looks its shown token up once. */
function vocabulary(): { readonly constraints: Constraints; readonly idOf: (text: string) => number | undefined } {
  const idOf = vi.fn((text: string) => (text.length === 1 ? text.charCodeAt(0) : undefined));
  const tokenizer: Pick<Tokenizer, 'vocabSize' | 'idOf' | 'isSpecial' | 'tokenBytes'> = {
    vocabSize: 128,
    idOf,
    isSpecial: () => false,
    tokenBytes: (id) => Uint8Array.of(id),
  };
  return { constraints: new Constraints(tokenizer as Tokenizer, 128, new Set([0])), idOf };
}

test('a compilation that stops leaves a later one of the same grammar in the cache', async () => {
  const { constraints, idOf } = vocabulary();
  const options = { grammar: 'root ::= "a"', showTokens: ['!'] };
  const controller = new AbortController();
  const first = constraints.start(options, controller.signal);
  const others = Array.from({ length: 8 }, (_, digit) => constraints.start({ grammar: `root ::= "${digit}"` }));
  controller.abort(new Error('gone'));
  const second = constraints.start(options); // the first one is no longer in the cache
  await expect(first).rejects.toThrow('gone');
  await Promise.all([...others, second]);
  expect(idOf).toHaveBeenCalledTimes(2);
  await constraints.start(options);
  expect(idOf).toHaveBeenCalledTimes(2);
});

test('a compilation waits for the event loop, not for timers', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout'] });
  const constraint = await vocabulary().constraints.start({ grammar: 'root ::= "a"' });
  expect(constraint?.mask().numTokens).toBe(1);
});
