/** The scripts in front of `npm test` and `pnpm winnow`: locks, exit codes and signals, and when a build is stale. */
import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { runProgram } from '../src/workspace/run.ts';
import { addFiles, copySettings, createFolder, type Files } from './fixture.ts';

/** A folder with the scripts, which treat it as the workspace root. */
function createRoot(files: Files): string {
  const folder = createFolder(files);
  copySettings(folder, 'scripts');
  return folder;
}

interface NativePackages {
  readonly releasedPlatforms: readonly string[];
  nativePackages(folder: string): readonly object[];
  nativeObstacles(packages: readonly object[], manifest: object, platforms: readonly string[]): readonly string[];
}

interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly output: string;
}

function start(folder: string, file: string, input = ''): Promise<Ended> {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, [file], { cwd: folder, stdio: ['pipe', 'pipe', 'pipe'] });
    let output = '';
    child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
    child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()));
    child.stdin.end(input);
    child.once('close', (code, signal) => resolve({ code, signal, output }));
  });
}

it('release: names every obstacle, with its remedy', async () => {
  const worker = `
    import { obstacles } from './scripts/bootstrap/release.mjs';
    process.env.npm_config_registry = 'http://127.0.0.1:9/';
    process.env.npm_config_userconfig = 'no-such-file';
    console.log(obstacles({ node: process.execPath, pnpm: process.execPath }).join('\\n'));
  `;
  const folder = createRoot({ 'worker.mjs': worker, '.changeset/one.md': '', '.changeset/config.json': '{}' });
  const before = await start(folder, 'worker.mjs');
  expect(before.output).toContain('this is no git checkout');
  expect(before.output).toContain('changesets without a version: 1; run "pnpm changeset version"');
  expect(before.output).toContain('npm is not logged in to its registry: run "npm login"');
  runProgram('git', ['init', '-q'], { cwd: folder });
  expect((await start(folder, 'worker.mjs')).output).toContain('there are uncommitted changes: commit them');
});

describe('release: packages of native kernels', async () => {
  const { nativeObstacles, nativePackages, releasedPlatforms } = (await import(
    fileURLToPath(new URL('../../../scripts/bootstrap/native-packages.mjs', import.meta.url))
  )) as NativePackages;
  const packageOf = (platform: string, version: string, extra: object = {}): Files => ({
    [`${platform}/package.json`]: JSON.stringify({ name: `@winnow/native-${platform}`, version, ...extra }),
    [`${platform}/winnow.node`]: 'binary',
  });
  const obstaclesOf = (files: Files): readonly string[] => {
    const optionalDependencies = { '@winnow/native-linux-x64-gnu': '1.2.3', '@winnow/native-darwin-x64': '1.2.3' };
    const manifest = { version: '1.2.3', optionalDependencies };
    return nativeObstacles(nativePackages(createFolder(files)), manifest, ['linux-x64-gnu', 'darwin-x64']);
  };

  it('all platforms, linked, in one version', () => {
    expect(obstaclesOf({ ...packageOf('linux-x64-gnu', '1.2.3'), ...packageOf('darwin-x64', '1.2.3') })).toEqual([]);
  });

  it('names what is missing or does not fit', () => {
    const found = obstaclesOf({
      ...packageOf('linux-x64-gnu', '1.2.4', { scripts: { install: 'make' } }),
      ...packageOf('win32-x64', '1.2.3'),
      'win32-x64/winnow.node': '',
    });
    expect(found).toEqual([
      '@winnow/native-linux-x64-gnu has version 1.2.4, expected 1.2.3',
      '@winnow/native-linux-x64-gnu has scripts',
      '@winnow/native-win32-x64 is for no platform of a release',
      '@winnow/native-win32-x64 has no winnow.node',
      '@winnow/native-win32-x64 is no optional dependency: run platform-package.mjs --link',
      '@winnow/native-darwin-x64 is missing: download the artifacts of the workflow "native"',
    ]);
  });

  it('the workflow builds the platforms of a release', () => {
    const workflow = readFileSync(new URL('../../../.github/workflows/native.yml', import.meta.url), 'utf8');
    expect([...workflow.matchAll(/platform: ([\w-]+),/g)].map(([, platform]) => platform)).toEqual(releasedPlatforms);
  });
});

describe('lock', () => {
  const worker = `
    import { appendFileSync } from 'node:fs';
    import { withLock } from './scripts/bootstrap/lock.mjs';
    await withLock('x', async () => {
      appendFileSync('log', 'in\\n');
      await new Promise((resolve) => setTimeout(resolve, 60));
      appendFileSync('log', 'out\\n');
    });
  `;

  it('lets one process in at a time', async () => {
    const folder = createRoot({ 'worker.mjs': worker });
    const ended = await Promise.all(Array.from({ length: 5 }, () => start(folder, 'worker.mjs')));
    expect(ended.map(({ code }) => code)).toEqual([0, 0, 0, 0, 0]);
    expect(readFileSync(join(folder, 'log'), 'utf8')).toBe('in\nout\n'.repeat(5));
  });

  it('takes over from a process that was killed', async () => {
    const killed = `
      import { withLock } from './scripts/bootstrap/lock.mjs';
      await withLock('x', async () => process.kill(process.pid, 'SIGKILL'));
    `;
    const folder = createRoot({ 'worker.mjs': worker, 'killed.mjs': killed });
    expect((await start(folder, 'killed.mjs')).signal).toBe('SIGKILL');
    expect(statSync(join(folder, '.toolchain', 'x.lock')).isDirectory()).toBe(true);
    const ended = await Promise.all([start(folder, 'worker.mjs'), start(folder, 'worker.mjs')]);
    expect(ended.map(({ code }) => code)).toEqual([0, 0]);
    expect(readFileSync(join(folder, 'log'), 'utf8')).toBe('in\nout\n'.repeat(2));
  });

  it('takes over a stale lock of another machine, and not before', async () => {
    const folder = createRoot({ 'worker.mjs': worker });
    const lock = join(folder, '.toolchain', 'x.lock');
    mkdirSync(lock, { recursive: true });
    writeFileSync(join(lock, 'owner.json'), JSON.stringify({ pid: 1, host: `not-${hostname()}`, token: 'x' }));
    const waiting = start(folder, 'worker.mjs');
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(() => statSync(join(folder, 'log'))).toThrow('ENOENT');
    const longAgo = new Date(Date.now() - 60_000);
    utimesSync(lock, longAgo, longAgo);
    expect((await waiting).code).toBe(0);
  });
});

describe('child programs', () => {
  const parent = `
    import { runThrough } from './scripts/bootstrap/process.mjs';
    process.exitCode = await runThrough(process.execPath, ['child.mjs'], { cwd: '.', env: process.env });
  `;

  it('keep their exit code, stdin and stdout', async () => {
    const child = 'process.stdin.pipe(process.stdout).on("unpipe", () => { process.exitCode = 7; });';
    const folder = createRoot({ 'parent.mjs': parent, 'child.mjs': child });
    expect(await start(folder, 'parent.mjs', 'one\ntwo')).toMatchObject({ code: 7, output: 'one\ntwo' });
  });

  it('forward the signal that ended them', async () => {
    const folder = createRoot({
      'parent.mjs': parent,
      'child.mjs': "process.kill(process.pid, 'SIGTERM'); setInterval(() => {}, 1e3);",
    });
    expect((await start(folder, 'parent.mjs')).signal).toBe('SIGTERM');
  });

  it.skipIf(process.platform === 'win32')('end when npm was killed', async () => {
    const folder = createRoot({
      'parent.mjs': parent,
      'child.mjs': `
        import { writeFileSync } from 'node:fs';
        process.on('SIGTERM', () => { process.stdout.write('stopped'); process.exit(); });
        setInterval(() => {}, 1e3);
        writeFileSync('ready', '');`,
      'npm.mjs': `
        import { spawn } from 'node:child_process';
        import { existsSync } from 'node:fs';
        const env = { ...process.env, npm_lifecycle_event: 'winnow' };
        spawn(process.execPath, ['parent.mjs'], { stdio: 'inherit', env });
        setInterval(() => existsSync('ready') && process.kill(process.pid, 'SIGKILL'), 20);`,
    });
    expect(await start(folder, 'npm.mjs')).toMatchObject({ signal: 'SIGKILL', output: 'stopped' });
  });
});

interface BuildStamp {
  buildStale(): boolean;
  recordBuild(builtFrom: string): void;
  sourceStamp(): string;
}

const source = 'packages/low/src/a.ts';

/** Writes a file until the file system's clock is past the last change of the source, so that a later change shows. */
function passTime(folder: string): void {
  const changed = statSync(join(folder, source), { bigint: true }).ctimeNs;
  const clock = join(folder, 'clock');
  do writeFileSync(clock, '');
  while (statSync(clock, { bigint: true }).ctimeNs <= changed);
}

async function create(): Promise<{ folder: string; isStale(): boolean; record(): void }> {
  const folder = createRoot({
    '.toolchain/log': '',
    'pnpm-lock.yaml': '',
    'apps/cli/package.json': { name: '@winnow/cli', dependencies: { '@winnow/low': 'workspace:*' } },
    'apps/cli/dist/main.js': '',
    'packages/low/package.json': { name: '@winnow/low' },
    'packages/low/dist/index.js': '',
    'packages/other/package.json': { name: '@winnow/other' },
    [source]: 'one',
    'packages/low/src/a.test.ts': '',
    'packages/other/src/a.ts': '',
  });
  const module = join(folder, 'scripts', 'bootstrap', 'build-stamp.mjs');
  const { buildStale, recordBuild, sourceStamp } = (await import(module)) as BuildStamp;
  const record = (): void => {
    recordBuild(sourceStamp());
    expect(buildStale()).toBe(false);
    passTime(folder);
  };
  return { folder, isStale: buildStale, record };
}

it('stale builds: are those never recorded', async () => {
  expect((await create()).isStale()).toBe(true);
});

it.each<[string, (folder: string) => void]>([
  ['an edit', (folder) => addFiles(folder, { [source]: 'other' })],
  [
    'an edit of the same length that keeps the time',
    (folder) => {
      const { atime, mtime } = statSync(join(folder, source));
      addFiles(folder, { [source]: 'two' });
      utimesSync(join(folder, source), atime, mtime);
    },
  ],
  ['a new file', (folder) => addFiles(folder, { 'packages/low/src/b.ts': '' })],
  ['a removed file', (folder) => rmSync(join(folder, source))],
  ['a changed manifest', (folder) => addFiles(folder, { 'packages/low/package.json': { name: '@winnow/low', x: 1 } })],
  ['changed output', (folder) => addFiles(folder, { 'packages/low/dist/index.js': 'x' })],
  ['removed output', (folder) => rmSync(join(folder, 'packages/low/dist'), { recursive: true })],
  ['a changed lockfile', (folder) => addFiles(folder, { 'pnpm-lock.yaml': 'x' })],
])('stale builds: show after %s', async (_, change) => {
  const { folder, isStale, record } = await create();
  record();
  change(folder);
  expect(isStale()).toBe(true);
});

it('stale builds: do not show after changes of tests, READMEs and packages that the program does not need', async () => {
  const { folder, isStale, record } = await create();
  record();
  addFiles(folder, {
    'packages/low/src/a.test.ts': 'x',
    'packages/low/README.md': 'x',
    'packages/other/src/a.ts': 'x',
  });
  expect(isStale()).toBe(false);
});
