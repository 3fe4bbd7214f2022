/** Errors keep their names and codes in a minified bundle. Runs without a browser. */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { WinnowError } from '@winnow/tensor';
import { repoRoot } from '@winnow/test-utils';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { bundleForNode } from './support/bundle.js';

interface Manifest {
  readonly private?: boolean;
  readonly peerDependencies?: object;
  readonly exports: Readonly<Record<string, string | Readonly<Record<string, string>>>>;
}

/** The sources of all entries of the public packages, except for adapters, which bundle the software that they adapt. */
function publicEntries(): string[] {
  return readdirSync(join(repoRoot, 'packages')).flatMap((name) => {
    const folder = join(repoRoot, 'packages', name);
    const manifest = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as Manifest;
    if (manifest.private === true || manifest.peerDependencies !== undefined) return [];
    const entries = Object.values(manifest.exports).map(
      (entry) => typeof entry !== 'string' && entry['@winnow/source'],
    );
    return entries.filter((path) => typeof path === 'string').map((path) => join(folder, path));
  });
}

/** The lists that constructors need; other fields may be missing. */
const fields = { known: [], items: [], pageIds: [], positions: [] };

type ErrorClass = new (fields: object, options: object) => WinnowError;

let folder: string;
let classes: (readonly [string, ErrorClass])[];
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'winnow-minified-'));
  // Vitest transforms other files, which takes ten times as long as to bundle them
  const modules = mkdirSync(join(folder, 'node_modules'), { recursive: true }) as string;
  const path = join(modules, 'bundle.mjs');
  const lines = publicEntries().map((entry, index) => `export * as entry${index} from ${JSON.stringify(entry)};`);
  writeFileSync(path, await bundleForNode(lines.join('\n'), { minify: true }));
  const entries = Object.values((await import(pathToFileURL(path).href)) as Record<string, Record<string, unknown>>);
  const exported = entries.flatMap((entry) => Object.entries(entry));
  classes = exported.filter((pair): pair is [string, ErrorClass] => {
    const [, value] = pair;
    return typeof value === 'function' && value.prototype instanceof Error;
  });
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test('the bundle is minified', () => {
  expect(classes.filter(([name, { name: minified }]) => name === minified)).toEqual([]);
});

test('each error class reports the name that it is exported by', () => {
  const names = classes.map(([name]) => name);
  for (const name of ['WinnowError', 'CapacityError', 'HtmlPageError', 'HubError', 'PageError', 'NeuronLoadError']) {
    expect(names).toContain(name);
  }
  expect(classes.map(([, Class]) => new Class(fields, {}).name)).toEqual(names);
});

test('codes, and the check for errors of another copy', () => {
  const codes = new Map(classes.map(([name, Class]) => [name, new Class(fields, {})] as const));
  expect(codes.get('FormatError')).toMatchObject({ code: 'format', name: 'FormatError' });
  expect(codes.get('HubError')).toMatchObject({ code: 'io', name: 'HubError' });
  expect(codes.get('UnsupportedOpError')).toMatchObject({ code: 'unsupported-op' });
  for (const error of codes.values()) expect(WinnowError.isInstance(error)).toBe(true);
});
