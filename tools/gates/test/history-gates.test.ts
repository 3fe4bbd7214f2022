/** Canaries of the gates around history and caching: changesets, turbo's cache keys, the sum of the tests. */
import { cpSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { checkChangesets } from '../src/releases/changesets.ts';
import { runProgram } from '../src/workspace/run.ts';
import { readWorkspace } from '../src/workspace/workspace.ts';
import { addFiles, copySettings, createFolder, repoFolder, workspaceFiles, type Files } from './fixture.ts';

function git(folder: string, ...words: string[]): void {
  const settings = ['-c', 'user.name=test', '-c', 'user.email=test@example.com', '-c', 'commit.gpgsign=false'];
  const outcome = runProgram('git', [...settings, ...words], { cwd: folder });
  if (outcome.code !== 0) throw new Error(outcome.output);
}

/** A branch without changes, which each test copies. */
function createBranch(folder: string): void {
  addFiles(folder, workspaceFiles());
  git(folder, 'init', '-q', '-b', 'main');
  git(folder, 'add', '.');
  git(folder, 'commit', '-q', '-m', 'base');
  git(folder, 'checkout', '-q', '-b', 'topic');
}

describe('changesets', () => {
  const changed = { 'packages/low/src/double.ts': 'export const double = (value: number): number => value + value;\n' };
  const changeset = (name: string, text = 'Says what changed.'): Files => ({
    '.changeset/quick-fox.md': `---\n'${name}': patch\n---\n\n${text}\n`,
  });

  const base = mkdtempSync(join(tmpdir(), 'winnow gate '));
  beforeAll(() => createBranch(base));
  afterAll(() => rmSync(base, { recursive: true, force: true }));

  function branch(files: Files, commit = true): string {
    const folder = createFolder({});
    cpSync(base, folder, { recursive: true, preserveTimestamps: true });
    addFiles(folder, files);
    if (commit) {
      git(folder, 'add', '.');
      git(folder, 'commit', '-q', '-m', 'change');
    }
    return folder;
  }
  const check = (folder: string): string => checkChangesets(readWorkspace(folder), 'main').problems.join('\n');

  it('accepts no change, and a change with its changeset', () => {
    expect(check(branch({ 'notes.md': 'x' }))).toBe('');
    expect(check(branch({ ...changed, ...changeset('@winnow/low') }))).toBe('');
  });

  it('requires none for changes of tests', () => {
    expect(check(branch({ 'packages/low/src/more.test.ts': 'export {};\n' }))).toBe('');
  });

  it('catches a change without a changeset, committed or not', () => {
    expect(check(branch(changed))).toContain('@winnow/low changed (packages/low/src/double.ts)');
    expect(check(branch(changed, false))).toContain('@winnow/low changed');
    expect(check(branch({ 'packages/low/src/new.ts': 'export {};\n' }, false))).toContain('@winnow/low changed');
  });

  it('catches a changeset for another package, an unknown one, and an empty one', () => {
    expect(check(branch({ ...changed, ...changeset('@winnow/high') }))).toContain('@winnow/low changed');
    expect(check(branch(changeset('@winnow/gone')))).toContain('not a package of the workspace');
    expect(check(branch(changeset('@winnow/low', '')))).toContain('does not describe the change');
  });

  it('reports a clone without a main branch, and still detects uncommitted changes', () => {
    const folder = branch(changed, false);
    const report = checkChangesets(readWorkspace(folder), 'nowhere');
    expect(report.notes.join('\n')).toContain('no common ancestor');
    expect(report.problems.join('\n')).toContain('@winnow/low changed');
  });

  it('tolerates a folder without git', () => {
    expect(checkChangesets(readWorkspace(createFolder(workspaceFiles()))).problems).toEqual([]);
  });
});

describe('cache keys of turbo', () => {
  function hashes(folder: string, env: Record<string, string> = {}): Record<string, string> {
    const turbo = join(repoFolder, 'node_modules', 'turbo', 'bin', 'turbo');
    const outcome = runProgram(process.execPath, [turbo, 'run', 'test', 'build', 'typecheck', '--dry=json'], {
      cwd: folder,
      env: { ...process.env, TURBO_TELEMETRY_DISABLED: '1', ...env },
    });
    const start = outcome.output.indexOf('{');
    if (outcome.code !== 0 || start < 0) throw new Error(outcome.output);
    const { tasks } = JSON.parse(outcome.output.slice(start, outcome.output.lastIndexOf('}') + 1)) as {
      tasks: { taskId: string; hash: string }[];
    };
    return Object.fromEntries(tasks.map(({ taskId, hash }) => [taskId, hash]));
  }

  function create(): string {
    const folder = createFolder(workspaceFiles());
    addFiles(folder, {
      'package.json': { name: 'fixture', private: true, packageManager: 'pnpm@12.21.0' },
      'pnpm-lock.yaml': "lockfileVersion: '9.0'\n\nimporters:\n\n  .: {}\n",
    });
    copySettings(folder, 'turbo.json');
    return folder;
  }

  it('change with the sources of a dependency, not with its tests', () => {
    const folder = create();
    const before = hashes(folder);
    expect(before['@winnow/high#test']).toBeDefined();
    addFiles(folder, { 'packages/low/src/double.test.ts': 'export {};\n' });
    const afterTest = hashes(folder);
    expect(afterTest['@winnow/low#test']).not.toBe(before['@winnow/low#test']);
    expect(afterTest['@winnow/high#test']).toBe(before['@winnow/high#test']);
    expect(afterTest['@winnow/low#build']).toBe(before['@winnow/low#build']);
    addFiles(folder, { 'packages/low/src/double.ts': 'export const double = (x: number): number => x + x;\n' });
    const afterSource = hashes(folder);
    for (const task of ['@winnow/low#test', '@winnow/high#test', '@winnow/high#build', '@winnow/high#typecheck']) {
      expect(afterSource[task], task).not.toBe(afterTest[task]);
    }
  });

  it('change with the shared data folder, for tests only', () => {
    const folder = create();
    const before = hashes(folder, { WINNOW_SHARED_STAMP: 'absent' });
    const after = hashes(folder, { WINNOW_SHARED_STAMP: 'other' });
    expect(after['@winnow/low#test']).not.toBe(before['@winnow/low#test']);
    expect(after['@winnow/low#build']).toBe(before['@winnow/low#build']);
  });
});

describe('sum of the tests', () => {
  const preset = join(repoFolder, 'packages', 'test-utils', 'vitest.mjs');
  const reports = join('node_modules', '.vitest-report.json');

  async function summarize(folder: string): Promise<{ total: object; lines: string[] }> {
    const module = (await import(join(repoFolder, 'scripts/bootstrap/test.mjs'))) as {
      summarize(folders: string[], print: (line: string) => void): object;
    };
    const lines: string[] = [];
    return { total: module.summarize([folder], (line) => lines.push(line)), lines };
  }

  function runTests(files: Files): { folder: string; code: number; output: string } {
    const folder = createFolder({
      'vitest.config.mjs': `import { winnowVitest } from ${JSON.stringify(preset)};\nexport default winnowVitest();\n`,
      ...files,
    });
    mkdirSync(join(folder, 'node_modules'));
    const env = { ...process.env, WINNOW_TEST_REPORT: '1' };
    const program = join(repoFolder, 'node_modules', 'vitest', 'vitest.mjs');
    const { code, output } = runProgram(process.execPath, [program, 'run', '--globals'], { cwd: folder, env });
    return { folder, code, output };
  }

  it('counts passed, failed and skipped tests; console output and use of the network are failures', async () => {
    const network = "it('uses the network', async () => { await fetch('http://192.0.2.1/').catch(() => {}); });\n";
    const { folder, code, output } = runTests({
      'src/a.test.ts':
        "it('a', () => {});\nit('b', () => { expect(1).toBe(2); });\ndescribe.skip('needs data', () => { it('c', () => {}); });\n",
      'src/b.test.ts': "throw new Error('broken file');\n",
      'src/c.test.ts': "it('writes', () => { console.log('noise'); });\n",
      'src/d.test.ts': network,
    });
    expect(code).not.toBe(0);
    const { total, lines } = await summarize(folder);
    expect(total).toEqual({ passed: 1, failed: 4, skipped: 1 });
    expect(lines.join('\n')).toContain('skipped 1: needs data c');
    expect(output).toContain('wrote to console.log, tests are silent: noise');
    expect(output).toContain('192.0.2.1');
  });

  it('fails a package without tests, and counts a missing report as a failure', async () => {
    expect(runTests({ 'src/a.ts': '' }).code).not.toBe(0);
    const empty = createFolder({ 'a.txt': '' });
    expect((await summarize(empty)).total).toEqual({ passed: 0, failed: 1, skipped: 0 });
  });

  it('counts a report without any test as a failure', async () => {
    const folder = createFolder({ [reports]: { testResults: [] } });
    expect((await summarize(folder)).total).toEqual({ passed: 0, failed: 1, skipped: 0 });
  });
});
