/** The supervisor reports each kind of defect with its input, and every target passes a short run. */
import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { createRng, WinnowError } from '@winnow/tensor';
import { mutateBytes, mutateJson, mutateText, testCoverage } from '@winnow/test-utils';
import { afterAll, expect, test } from 'vitest';
import { Inputs, readCorpus } from '../src/inputs.ts';
import { Supervisor } from '../src/supervise.ts';
import { targetNames } from '../src/targets.ts';

const root = join(import.meta.dirname, '..');
const moduleOf = (...path: string[]): string => pathToFileURL(join(root, ...path)).href;
const corpusOf = (name: string): string => join(root, 'corpus', `${name}.txt`);
const textOf = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);

/** What a run of a canary found. */
async function found(canary: string, maxInputs: number, inputMs: number): Promise<unknown[]> {
  const supervisor = new Supervisor({ inputMs, memoryBytes: 300 * 2 ** 20 });
  const module = moduleOf('test', 'canaries', `${canary}.ts`);
  const { numInputs, findings } = await supervisor.fuzz({ module, corpus: [], seed: 1, maxInputs, maxMs: 100_000 });
  await supervisor.close();
  expect(numInputs).toBe(maxInputs);
  return findings.map(({ index, input, reason }) => [index, textOf(input), reason.split('\n')[0]]);
}

test('errors without a type and hangs are findings; the run goes on after each', async () => {
  expect(await found('broken', 6, 6000)).toEqual([
    [2, 'untyped', 'TypeError: undefined is not a function'],
    [3, 'rejected', 'RangeError: nobody waits for this'],
    [4, 'hangs', 'more than 6 s'],
  ]);
});

// busy machines take more than 6 s to touch 300 MiB for the first time
test('memory beyond the bound is a finding; the run goes on after it', async () => {
  expect(await found('greedy', 3, 60_000)).toEqual([[1, 'memory', 'more than 300 MiB of memory']]);
});

test('the same seed gives the same inputs, another seed others', async () => {
  const { createTarget } = (await import('./targets/gbnf.ts')) as typeof import('./targets/gbnf.ts');
  const target = await createTarget();
  const inputsOf = (seed: number): string[] => {
    const inputs = new Inputs(target, [], seed);
    return Array.from({ length: 50 }, (_, index) => textOf(inputs.at(index)));
  };
  expect(inputsOf(3)).toEqual(inputsOf(3));
  expect(inputsOf(3).filter((input, index) => input !== inputsOf(4)[index]).length).toBeGreaterThan(30);
});

test('mutations change what they are given, within bounds', () => {
  const random = createRng(1);
  const tree = { a: [1, { b: 'text' }], c: null };
  const changed = Array.from({ length: 100 }, () => JSON.stringify(mutateJson(random, tree, { d: 1 })));
  expect(new Set(changed).size).toBeGreaterThan(60);
  expect(JSON.stringify(tree)).toBe('{"a":[1,{"b":"text"}],"c":null}');
  const bytes = new Uint8Array(100);
  for (let i = 0; i < 200; i++) expect(mutateBytes(random, bytes, 110).length).toBeLessThanOrEqual(110);
  expect(bytes.every((byte) => byte === 0)).toBe(true);
  const texts = Array.from({ length: 50 }, () => mutateText(random, 'a ::= "b"', /\S+|\s+/g, ['|', '(']));
  expect(new Set(texts).size).toBeGreaterThan(30);
});

test('the corpus is small', () => {
  const sizes = targetNames.map(corpusOf).map((path) => (existsSync(path) ? statSync(path).size : 0));
  expect(sizes.reduce((sum, size) => sum + size, 0)).toBeLessThan(300_000);
});

/** `pnpm fuzz --minutes N` runs more. */
const maxInputs = testCoverage === 'full' ? 2000 : 60;

const supervisor = new Supervisor();
afterAll(() => supervisor.close());

test.each(targetNames)('%s: mutated inputs cause typed errors only', async (name) => {
  expect(WinnowError.isInstance(new Error('untyped'))).toBe(false);
  const result = await supervisor.fuzz({
    ...{ module: moduleOf('test', 'targets', `${name}.ts`), corpus: readCorpus(corpusOf(name)) },
    ...{ seed: 1, maxInputs, maxMs: 120_000 },
  });
  expect(result.findings.map(({ index, reason }) => `input ${index}: ${reason}`)).toEqual([]);
  expect(result.numInputs).toBe(maxInputs);
});
