import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { repoRoot } from '@winnow/test-utils';
import { describe, expect, it, onTestFinished } from 'vitest';
import { publicPackages } from '../src/archives.ts';
import { readProject, readProjects, selectProjects, type Step } from '../src/project.ts';
import { startRegistry } from '../src/registry.ts';
import { runProject, type Result } from '../src/run.ts';
import { checkText, expectedText, textOfLastLine } from '../src/steps.ts';
import { resultLines } from '../src/table.ts';

const projectsFolder = join(dirname(fileURLToPath(import.meta.url)), '..', 'projects');

/** A folder that is removed after the test. */
function createFolder(files: Readonly<Record<string, string | object>> = {}): string {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'winnow-integrations-test-')));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), typeof content === 'string' ? content : JSON.stringify(content));
  }
  return folder;
}

interface Packument {
  readonly versions: Readonly<
    Record<string, { readonly dist: { readonly tarball: string; readonly integrity: string } }>
  >;
}

const generatingSteps: readonly Step[] = [{ name: 'run', run: ['node', 'main.mjs'], generates: true }];

/** A project without dependencies. */
function createProject(files: Readonly<Record<string, string>>, steps = generatingSteps): string {
  return createFolder({
    'package.json': { name: 'canary', private: true },
    'README.md': 'A canary.',
    'integration.json': { always: false, versions: [], steps },
    ...files,
  });
}

async function run(folder: string, missingBrowser?: string): Promise<Result> {
  const options = { environment: {}, folder: createFolder(), keep: false, missingBrowser };
  return runProject(readProject(folder, 'canary'), options);
}

const generating = `console.log('a note');\nconsole.log(${JSON.stringify(JSON.stringify(expectedText))});\n`;

it('the TypeScript project compiles the types of all public packages but the command line and the server', () => {
  const { dependencies } = JSON.parse(readFileSync(join(projectsFolder, 'typescript', 'package.json'), 'utf8')) as {
    dependencies: Readonly<Record<string, string>>;
  };
  const names = publicPackages(repoRoot).map(({ name }) => name);
  const expected = names.filter((name) => !['@winnow/cli', '@winnow/server'].includes(name)).sort();
  expect(Object.keys(dependencies).sort()).toEqual(expected);
  const source = readFileSync(join(projectsFolder, 'typescript', 'packages.ts'), 'utf8');
  expect([...source.matchAll(/from '(.*)'/g)].map(([, name]) => name)).toEqual(expected);
});

describe('a fresh project', () => {
  it('is ok when it generates the expected text', async () => {
    expect(await run(createProject({ 'main.mjs': generating }))).toMatchObject({ status: 'ok', passed: ['run'] });
  });

  it('fails with another text', async () => {
    const result = await run(createProject({ 'main.mjs': 'console.log(\'" the others."\');\n' }));
    expect(result.status).toBe('failed');
    expect(result.problem).toMatch(/^run: generated another text: expected ".*", found " the others\."$/);
  });

  it('fails with the output of a program that fails', async () => {
    const result = await run(createProject({ 'main.mjs': "throw new Error('no such model');\n" }));
    expect(result.status).toBe('failed');
    expect(result.problem).toMatch(/^run: node main\.mjs: exit code 1\n[^]*no such model/);
  });

  it('fails when a program is missing', async () => {
    const result = await run(createProject({}, [{ name: 'build', run: ['no-such-bundler'] }, ...generatingSteps]));
    expect(result).toMatchObject({ status: 'failed', passed: [] });
    expect(result.problem).toMatch(/^build: .*no-such-bundler/);
  });

  it('fails when its server ends', async () => {
    const steps = [{ name: 'dev', serve: ['node', 'main.mjs', '{port}'] }];
    const result = await run(createProject({ 'main.mjs': "throw new Error('no port');\n" }, steps));
    expect(result.problem).toMatch(/^dev: node main\.mjs \d+: did not answer at [^]*no port/);
  });

  it('skips pages by name without a browser', async () => {
    const steps = [...generatingSteps, { name: 'preview', folder: 'dist' }];
    const result = await run(createProject({ 'main.mjs': generating }, steps), 'no browser here');
    expect(result).toMatchObject({ status: 'skipped', passed: ['run'], skipped: ['preview'] });
    expect(resultLines([result], 'no browser here').slice(-2)).toEqual([
      expect.stringMatching(/^canary .* skipped preview; ok \(run\)$/),
      'skipped: no browser here',
    ]);
  });
});

describe('the templates', () => {
  const projects = readProjects(projectsFolder);

  it('include those of every run', () => {
    expect(projects.filter(({ always }) => always).map(({ name }) => name)).toEqual(['esbuild', 'vite']);
  });

  it('can be selected by name', () => {
    expect(selectProjects(projects, ['vite', 'node']).map(({ name }) => name)).toEqual(['node', 'vite']);
    expect(() => selectProjects(projects, ['vitte'])).toThrow(/no project "vitte"; there are .*vite/);
  });

  it('pin their versions and generate text', () => {
    const withManifest = (dependencies: object, steps = generatingSteps): string =>
      createProject({ 'package.json': JSON.stringify({ name: 'canary', dependencies }) }, steps);
    const read = (folder: string) => (): unknown => readProject(folder, 'canary');
    expect(read(withManifest({ vite: '^8.0.0' }))).toThrow('vite must have an exact version, found "^8.0.0"');
    expect(read(withManifest({ '@winnow/engine': '0.0.0' }))).toThrow('@winnow/engine must have "*"');
    expect(read(withManifest({}, [{ name: 'run', run: ['node'] }]))).toThrow('no step generates text');
    expect(() => readProject(createFolder(), 'empty')).toThrow('projects/empty: package.json is missing');
  });
});

describe('the registry', () => {
  it('describes an archive by its manifest and integrity', async () => {
    const manifest = { name: '@winnow/low', version: '1.2.3', dependencies: { 'no-such-package': '^1.0.0' } };
    const folder = createFolder({ 'package/package.json': manifest });
    const archive = join(folder, 'low.tgz');
    execFileSync('tar', ['-czf', archive, '-C', folder, 'package']);
    const registry = await startRegistry(new Map([['@winnow/low', archive]]));
    onTestFinished(() => registry.close());
    const [url] = Object.values(registry.environment);
    const answer = (await (await fetch(`${url}@winnow%2flow`)).json()) as Packument;
    expect(answer).toMatchObject({ 'dist-tags': { latest: '1.2.3' }, versions: { '1.2.3': manifest } });
    const { tarball, integrity } = answer.versions['1.2.3'].dist;
    const bytes = Buffer.from(await (await fetch(tarball)).arrayBuffer());
    expect(`sha512-${createHash('sha512').update(bytes).digest('base64')}`).toBe(integrity);
    expect((await fetch(`${url}@winnow%2fhigh`)).status).toBe(404);
  });
});

describe('the text', () => {
  it('is the last line of the output', () => {
    expect(textOfLastLine(`loading\n"a\\nb"\n`)).toBe('a\nb');
    expect(() => textOfLastLine('undefined\n')).toThrow('must be the generated text as JSON, found:\nundefined');
  });

  it('must be the expected one to the last character', () => {
    expect(() => checkText(expectedText)).not.toThrow();
    expect(() => checkText(expectedText.trim())).toThrow('generated another text');
  });
});
