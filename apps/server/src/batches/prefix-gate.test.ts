import { expect, test } from 'vitest';
import { PrefixGate } from './prefix-gate.js';
import { numSharedHashes, prefixGroup } from './prefix-group.js';

const shared = 'The harbor. '.repeat(200);
const other = 'The garden. '.repeat(200);

test('keys have in common what the texts have', () => {
  const [a, b] = [prefixGroup(`${shared}a`), prefixGroup(`${shared}b`)];
  expect(prefixGroup('short')).toBe('');
  expect(numSharedHashes(a, b)).toBe(a.length / 5);
  expect(numSharedHashes(a, prefixGroup(`${other}a`))).toBe(0);
  // 300 of 2,400 characters: hashes of 96, 120, 150, 188, 235 and 294
  expect(numSharedHashes(a, prefixGroup(shared.slice(0, 300) + other))).toBe(6);
  expect(prefixGroup('x'.repeat(100_000)).length).toBeLessThanOrEqual(150);
});

test('sorted by their keys, texts that begin alike follow each other', () => {
  const texts = ['b', 'a', 'c'].flatMap((end) => [shared + end, other + end, `${other.slice(0, 600)}${shared}${end}`]);
  const begins = texts.toSorted((a, b) => (prefixGroup(a) < prefixGroup(b) ? -1 : 1)).map((text) => text.slice(0, -1));
  const numChanges = begins.filter((begin, i) => i > 0 && begin !== begins[i - 1]).length;
  expect(numChanges).toBe(2);
});

test('a line waits for one that computes the same beginning, and no longer', async () => {
  const gate = new PrefixGate();
  const entered: string[] = [];
  const enter = async (name: string, text: string): Promise<() => void> => {
    const leave = await gate.enter(prefixGroup(text));
    entered.push(name);
    return leave;
  };
  const settle = (): Promise<unknown> => new Promise((resolve) => setImmediate(resolve));
  const first = await enter('first', `${shared}1`);
  const waiting = [enter('second', `${shared}2`), enter('third', `${shared}3`)];
  await enter('other', `${other}1`);
  await enter('short', 'short');
  await settle();
  expect(entered).toEqual(['first', 'other', 'short']);
  first();
  await Promise.all(waiting);
  await enter('fourth', `${shared}4`); // what it shares is there
  expect(entered).toEqual(['first', 'other', 'short', 'second', 'third', 'fourth']);
});

test('when the first one fails, another one computes, and the others wait for it', async () => {
  const gate = new PrefixGate();
  const [first, second] = [await gate.enter(prefixGroup(`${shared}1`)), gate.enter(prefixGroup(`${shared}2`))];
  first();
  (await second)();
});
