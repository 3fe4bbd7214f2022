import type { Sliced } from '@winnow/tensor';
import type { Tokenizer } from '@winnow/tokenizers';
import { afterEach, expect, test, vi } from 'vitest';
import { Compilations } from '../runtime/compilation.js';
import { Constraints } from './constraint.js';

afterEach(() => vi.useRealTimers());

/** Every look at the clock takes a second. */
let time = 0;

/** A vocabulary of the ASCII characters; each compilation looks its shown token up once. */
function vocabulary(): { readonly constraints: Constraints; readonly idOf: (text: string) => number | undefined } {
  const idOf = vi.fn((text: string) => (text.length === 1 ? text.charCodeAt(0) : undefined));
  const tokenizer: Pick<Tokenizer, 'vocabSize' | 'idOf' | 'isSpecial' | 'tokenBytes'> = {
    vocabSize: 128,
    idOf,
    isSpecial: () => false,
    tokenBytes: (id) => Uint8Array.of(id),
  };
  return { constraints: new Constraints(tokenizer as Tokenizer, 128, new Set([0]), () => (time += 1000)), idOf };
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

test('a grammar that takes too long is refused with its place', async () => {
  const { constraints } = vocabulary();
  const grammar = `root ::= "a"\nlong ::= ${'[a-z] '.repeat(3000)}`.replace('"a"', 'long{20}');
  const refused = constraints.start({ grammar, compileTimeoutMs: 500 });
  const error = { code: 'capacity', source: 'grammar', resource: 'compile time', available: 500, unit: 'ms' };
  await expect(refused).rejects.toMatchObject({ ...error, field: expect.stringMatching(/^(root|long)$/) as string });
  expect(await constraints.start({ grammar, compileTimeoutMs: 3_600_000 })).toBeDefined();
  await expect(constraints.start({ grammar, compileTimeoutMs: 0 })).rejects.toMatchObject({ code: 'argument' });
});

test('callers that share a compilation have deadlines of their own', async () => {
  const { constraints, idOf } = vocabulary();
  const options = { grammar: `root ::= long{20}\nlong ::= ${'[a-z] '.repeat(3000)}`, showTokens: ['!'] };
  const first = constraints.start({ ...options, compileTimeoutMs: 500 });
  const second = constraints.start({ ...options, compileTimeoutMs: 3_600_000 });
  const third = constraints.start({ ...options, compileTimeoutMs: 700 });
  await expect(first).rejects.toMatchObject({ resource: 'compile time', available: 500 });
  await expect(third).rejects.toMatchObject({ resource: 'compile time', available: 700 });
  expect(await second).toBeDefined();
  expect(idOf).toHaveBeenCalledTimes(1);
});

test('a compilation waits for the event loop, not for timers', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout'] });
  const constraint = await vocabulary().constraints.start({ grammar: 'root ::= "a"' });
  expect(constraint?.mask().numTokens).toBe(1);
});

test('a compilation stops when nobody waits for it anymore', async () => {
  let numSlices = 0;
  function* slices(): Sliced<string> {
    for (; numSlices < 10_000; numSlices++) yield;
    return 'complete';
  }
  const compilations = new Compilations<string>(8);
  const controller = new AbortController();
  const waiting = compilations.get('key', slices).wait({ signal: controller.signal });
  setImmediate(() => controller.abort(new Error('gone')));
  await expect(waiting).rejects.toThrow('gone');
  for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve));
  expect(numSlices).toBeLessThan(10_000);
  const numBefore = numSlices;
  for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
  expect(numSlices).toBe(numBefore);
  expect(await compilations.get('key', slices).wait({})).toBe('complete');
});

test('a compilation begins when the first caller waits for it', async () => {
  let hasBegun = false;
  function* slices(): Sliced<string> {
    hasBegun = true;
    yield;
    return 'complete';
  }
  const compilation = new Compilations<string>(8).get('key', slices);
  for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve));
  expect(hasBegun).toBe(false);
  expect(await compilation.wait({})).toBe('complete');
});
