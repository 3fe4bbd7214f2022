/** Folders in the forms of both suites: what compiles, and which instances are judged wrong. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { measureSchemaSuite } from './schema-suite.js';

test('counts schemas that compile, accepted invalid instances and rejected valid ones', () => {
  const folder = mkdtempSync(join(tmpdir(), 'winnow-suite-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const integers = [
    { data: 1, valid: true },
    { data: 'x', valid: false },
    { data: 2, valid: false }, // wrong on purpose: it is accepted
    { data: 'y', valid: true }, // and this one rejected
  ];
  mkdirSync(join(folder, 'sub'));
  const write = (name: string, content: unknown): void => writeFileSync(join(folder, name), JSON.stringify(content));
  write('a.json', [
    { schema: { type: 'integer' }, tests: integers },
    { schema: { uniqueItems: true }, tests: [{ data: [1, 1], valid: false }] },
  ]);
  write('sub/b.json', { schema: { type: 'null' }, tests: [{ data: null, valid: true }] });
  write('sub/settings.json', { name: 'no case' });
  const said: string[] = [];
  const figures = [...measureSchemaSuite(folder, (text) => said.push(text))];
  expect(figures.slice(0, 3).map(({ ratio, ratioOf }) => [ratio, ratioOf])).toEqual([
    [2, 'of 3 schemas'],
    [1, 'of 2 instances'],
    [1, 'of 3 instances'],
  ]);
  expect(said).toEqual([`${join(folder, 'a.json')}: an invalid instance is accepted`]);
});
