import { cpSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { repoRoot } from '@winnow/test-utils';
import { expect, it, onTestFinished } from 'vitest';
import { hashInputs } from '../src/inputs.ts';
import { readProjects, type Project } from '../src/project.ts';
import { changedProjects, guideIsCurrent, guideTable, readRecords, withTable } from '../src/record.ts';

const projects = readProjects(join(repoRoot, 'tools', 'integrations', 'projects'));

const vite: Project = {
  name: 'vite',
  folder: 'projects/vite',
  always: false,
  inputs: ['apps/cli/src/main.ts'],
  versions: [],
  steps: [],
};

function createRoot(): string {
  const root = realpathSync(mkdtempSync(join(tmpdir(), 'winnow-integrations-inputs-')));
  onTestFinished(() => rmSync(root, { recursive: true, force: true }));
  write(root, 'packages/low/package.json', '{}');
  write(root, 'packages/low/src/index.ts', 'export {};\n');
  return root;
}

function write(root: string, path: string, text: string): void {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), text);
}

it.each([
  ['packages/low/src/host/file.browser.ts', true],
  ['packages/low/package.json', true],
  ['tools/integrations/projects/vite/src/page.js', true],
  ['tools/integrations/projects/next/app/page.jsx', false],
  ['apps/cli/src/main.ts', true],
  ['packages/low/src/kernel.ts', false],
  ['packages/low/src/host/file.browser.test.ts', false],
])('inputs: a change of %s counts: %s', (path, counts) => {
  const root = createRoot();
  const before = hashInputs(root, vite);
  write(root, path, 'changed');
  expect(hashInputs(root, vite) !== before).toBe(counts);
});

it('the TypeScript project runs again when a declaration changes that no index has', () => {
  const root = createRoot();
  const typescript = projects.find(({ name }) => name === 'typescript') as Project;
  const path = 'packages/low/dist/deep/stream.d.ts';
  write(root, path, 'export declare function read(bytes: Uint8Array): void;\n');
  const [before, other] = [hashInputs(root, typescript), hashInputs(root, vite)];
  write(root, path, 'export declare function read(bytes: Buffer): void;\n');
  expect([hashInputs(root, typescript) === before, hashInputs(root, vite) === other]).toEqual([false, true]);
});

it('a project runs again when its inputs differ from the recorded ones', () => {
  const root = createRoot();
  const next = { ...vite, name: 'next' };
  const node = { ...vite, name: 'node', always: true };
  const recorded = (project: Project): object => ({
    versions: '',
    ran: '',
    date: '',
    inputs: hashInputs(root, project),
  });
  const records = { vite: recorded(vite), next: recorded(next), node: recorded(node) };
  write(root, 'tools/integrations/results.json', JSON.stringify(records));
  const changed = (): string[] => changedProjects(root, [vite, next, node]).map(({ name }) => name);
  expect(changed()).toEqual(['node']);
  write(root, 'tools/integrations/projects/next/package.json', '{}');
  expect(changed()).toEqual(['next', 'node']);
  rmSync(join(root, 'tools/integrations/results.json'));
  expect(changed()).toEqual(['vite', 'next', 'node']);
});

it('the guide shows what is recorded, and only projects that exist are', () => {
  expect(guideIsCurrent(repoRoot)).toBe(true);
  const names = projects.map(({ name }) => name);
  expect(Object.keys(readRecords(repoRoot)).filter((name) => !names.includes(name))).toEqual([]);
});

it('another table in the guide is not current', () => {
  const root = createRoot();
  mkdirSync(join(root, 'docs', 'guides'), { recursive: true });
  cpSync(join(repoRoot, 'docs/guides/bundlers.md'), join(root, 'docs/guides/bundlers.md'));
  write(root, 'tools/integrations/results.json', JSON.stringify({}));
  expect(guideIsCurrent(root)).toBe(false);
  const guide = readFileSync(join(root, 'docs/guides/bundlers.md'), 'utf8');
  expect(withTable(withTable(guide, {}), readRecords(repoRoot))).toBe(guide);
  expect(() => withTable('# Bundlers', {})).toThrow('bundlers.md: no lines');
});

it('the table has a row for each project', () => {
  const records = { vite: { versions: 'vite 8.0.0', ran: 'dev, build', date: '2026-01-02', inputs: '' } };
  expect(guideTable(records).split('\n')).toEqual([
    '| project | versions   | what ran   | on         |',
    '| ------- | ---------- | ---------- | ---------- |',
    '| vite    | vite 8.0.0 | dev, build | 2026-01-02 |',
  ]);
});
