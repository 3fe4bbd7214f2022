import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it, onTestFinished } from 'vitest';
import { withArchives } from '../src/install.ts';
import { readProject, readProjects, selectProjects, type Step } from '../src/project.ts';
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
  const options = { archives: new Map<string, string>(), folder: createFolder(), keep: false, missingBrowser };
  return runProject(readProject(folder, 'canary'), options);
}

const generating = `console.log('a note');\nconsole.log(${JSON.stringify(JSON.stringify(expectedText))});\n`;

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

describe('installing', () => {
  const archives = new Map([
    ['@winnow/engine', '/archives/engine.tgz'],
    ['@winnow/tensor', '/archives/tensor.tgz'],
  ]);

  it('replaces packages of the workspace, also below others', () => {
    const manifest = { name: 'app', dependencies: { '@winnow/engine': '*', react: '19.0.0' } };
    expect(withArchives(manifest, archives)).toEqual({
      name: 'app',
      dependencies: { '@winnow/engine': 'file:/archives/engine.tgz', react: '19.0.0' },
      overrides: { '@winnow/engine': 'file:/archives/engine.tgz', '@winnow/tensor': 'file:/archives/tensor.tgz' },
    });
  });

  it('rejects a private package', () => {
    expect(() => withArchives({ name: 'app', dependencies: { '@winnow/bench': '*' } }, archives)).toThrow(
      'app: @winnow/bench is not a public package of the workspace',
    );
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
