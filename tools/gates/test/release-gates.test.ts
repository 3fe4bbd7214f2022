/** Canaries of the gates of a release: manifests, and the plan of changesets. */
import { describe, expect, it } from 'vitest';
import { checkManifests } from '../src/releases/manifests.ts';
import { checkArchive, withArchive } from '../src/releases/publish.ts';
import { checkReleasePlan } from '../src/releases/release-plan.ts';
import { readWorkspace } from '../src/workspace/workspace.ts';
import { addFiles, createFolder, libraryFiles, workspaceFiles, type Files } from './fixture.ts';

const site = 'https://github.com/winnow-ai/winnow';

/** Fields that a public package of the folder `packages` needs. */
const published = (name: string, extra: object = {}): Files =>
  libraryFiles(name, {
    description: 'Twice.',
    keywords: ['double', 'winnow'],
    homepage: `${site}/tree/main/packages/${name}#readme`,
    repository: { type: 'git', url: `git+${site}.git`, directory: `packages/${name}` },
    ...extra,
  });

function createWorkspace(...files: readonly Files[]): string {
  const folder = createFolder(workspaceFiles());
  addFiles(folder, libraryFiles('helper', { private: true }));
  addFiles(folder, libraryFiles('other', { private: true }));
  addFiles(folder, published('low'));
  addFiles(folder, published('high', { dependencies: { '@winnow/low': 'workspace:^' } }));
  for (const each of files) addFiles(folder, each);
  return folder;
}

describe('manifests', () => {
  const check = (...files: readonly Files[]): string =>
    checkManifests(readWorkspace(createWorkspace(...files))).join('\n');

  it('accepts public packages with all fields, and private ones without', () => {
    expect(check()).toBe('');
  });

  it.each<[string, object, string]>([
    ['no homepage', { homepage: undefined }, '"homepage" must be "https://'],
    ['the folder of another package', { repository: { type: 'git', url: site } }, '"repository" must be {"type":"git"'],
    ['one keyword', { keywords: ['winnow'] }, '"keywords" must name at least two'],
    ['no description', { description: '' }, '"description" is missing'],
    ['no gates', { scripts: {} }, 'script "gates" is missing'],
    [
      'an exact range',
      { dependencies: { '@winnow/high': 'workspace:*' } },
      'must be "workspace:^", found "workspace:*"',
    ],
    [
      'a private dependency',
      { dependencies: { '@winnow/helper': 'workspace:^' } },
      '"@winnow/helper": the package is private',
    ],
  ])('catches %s', (_, extra, message) => {
    expect(check(published('low', extra))).toContain(message);
  });
});

describe('the archive of a program', () => {
  it('contains the program', async () => {
    const program = { name: 'x', version: '1.0.0', license: 'MIT', files: ['dist'], bin: { x: './dist/main.js' } };
    const files = { 'package.json': program, 'README.md': '# x\n', LICENSE: 'MIT\n' };
    const folder = createFolder({ ...files, 'dist/main.js': '#!/usr/bin/env node\n' });
    await withArchive(folder, (archive) => expect(checkArchive(archive)).toEqual([]));
    await withArchive(createFolder({ ...files, 'dist/other.js': '' }), (archive) =>
      expect(checkArchive(archive)).toEqual(['the archive lacks dist/main.js']),
    );
  });
});

describe('release plan', () => {
  const config = {
    changelog: '@changesets/cli/changelog',
    baseBranch: 'main',
    access: 'public',
    privatePackages: false,
  };
  const changeset = (...names: readonly string[]): Files => ({
    '.changeset/config.json': config,
    '.changeset/first.md': `---\n${names.map((name) => `'${name}': minor\n`).join('')}---\n\nFirst release.\n`,
  });
  const check = (...files: readonly Files[]): string =>
    checkReleasePlan(readWorkspace(createWorkspace(...files))).join('\n');

  it('accepts changesets that release every public package', () => {
    expect(check(changeset('@winnow/low', '@winnow/high'))).toBe('');
  });

  it('catches a changeset for a package that is not in the workspace', () => {
    expect(check(changeset('@winnow/low', '@winnow/high', '@winnow/gone'))).toContain('changeset status fails');
  });

  it('catches a changeset for a public and a private package', () => {
    const problems = check(changeset('@winnow/low', '@winnow/high', '@winnow/helper'));
    expect(problems).toContain('changeset status fails');
    expect(problems).toContain('@winnow/helper');
  });

  it('catches a package that is never released', () => {
    expect(check(changeset('@winnow/high'))).toContain('packages/low: no changeset releases it');
  });
});
