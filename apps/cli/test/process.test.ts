/** The built program as a process: streams, signals, exit codes. Requires a build. */
import { spawn, type ChildProcessWithoutNullStreams } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { demoModelUrl } from '@winnow/demo-model';
import * as engine from '@winnow/engine';
import { openNative } from '@winnow/native/node';
import { beforeAll, describe, expect, test } from 'vitest';
import { runCli } from './run-cli.js';

const program = fileURLToPath(new URL('../dist/main.js', import.meta.url));

beforeAll(() => {
  if (!existsSync(program))
    throw new Error('apps/cli/dist/main.js is missing: build @winnow/cli and what it needs first');
});

function start(argv: readonly string[], env: Record<string, string> = {}) {
  const child = spawn(process.execPath, [program, ...argv], { stdio: 'pipe', env: { ...process.env, ...env } });
  return { child, ...collect(child) };
}

function collect(child: ChildProcessWithoutNullStreams) {
  const texts = { stdout: '', stderr: '' };
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    texts.stdout += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    texts.stderr += text;
  });
  const ended = once(child, 'close').then(([code]) => ({ code: code as number | null, ...texts }));
  return { texts, ended };
}

function runProcess(argv: readonly string[], stdin = '', env: Record<string, string> = {}) {
  const { child, ended } = start(argv, env);
  child.stdin.end(stdin);
  return ended;
}

const repository = new URL('../../../', import.meta.url);

describe('the demo', async () => {
  const { demoArguments } = (await import(fileURLToPath(new URL('scripts/bootstrap/demo.mjs', repository)))) as {
    demoArguments: readonly string[];
  };
  const { kernels } = await openNative(true);

  test('uses native kernels where they were built, and needs no compiler', async () => {
    const env = { WINNOW_NATIVE: 'auto', PATH: '', CXX: 'no-compiler' };
    const { code, stdout } = await runProcess([...demoArguments, '-n', '2', '--json'], '', env);
    expect([code, JSON.parse(stdout)]).toEqual([
      0,
      expect.objectContaining({ backend: kernels === undefined ? 'wasm' : `wasm+${kernels.level}` }),
    ]);
  });

  test('its build compiles no C++', () => {
    const tasks = ['turbo.json', 'packages/native/turbo.json'].map((file) => {
      const { tasks: all } = JSON.parse(readFileSync(new URL(file, repository), 'utf8')) as {
        tasks: Record<string, { dependsOn?: readonly string[] }>;
      };
      return all['build']?.dependsOn;
    });
    expect(tasks).toEqual([['^build'], ['^build']]);
  });
});

const endless = ['run', '-p', 'Once upon a time', '-n', '-1', '--ignore-eos', '--seed', '1'];

/** Reports on stderr when the server, its dependencies, the library of MCP or the modules of other commands are resolved. */
const noticeServer = `data:text/javascript,${encodeURIComponent(`
import { registerHooks } from 'node:module';
registerHooks({
  resolve(specifier, context, next) {
    const isLate = /^(@winnow\\/(server|evaluation|convert)|fastify|@fastify\\/|typebox|@modelcontextprotocol\\/)/.test(specifier);
    if (isLate) process.stderr.write('looks for ' + specifier + '\\n');
    return next(specifier, context);
  },
});`)}`;

const noticing = { NODE_OPTIONS: `--import ${noticeServer}` };

describe('winnow serve as a process', () => {
  test.skipIf(process.platform === 'win32')(
    'answers, finishes running requests after SIGTERM, and exits with 0',
    async () => {
      const demo = fileURLToPath(new URL('.', demoModelUrl));
      const argv = ['serve', demo, '--model-id', 'winnow-tiny', '--port', '0'];
      const { child, texts, ended } = start([...argv, '--embedding-model', demo, '--pooling', 'mean'], noticing);
      while (!texts.stdout.includes('\n')) await once(child.stdout, 'data');
      const url = texts.stdout.replace('listening on ', '').trim();
      const ask = (path: string, body: object): Promise<Response> =>
        fetch(`${url}/v1/${path}`, {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: JSON.stringify(body),
        });
      const { data: models } = (await (await fetch(`${url}/v1/models`)).json()) as { data: { id: string }[] };
      expect(models).toHaveLength(2);
      const embedding = await ask('embeddings', { model: models[1]?.id, input: 'Hi' });
      expect(embedding.status).toBe(200);
      await embedding.text();
      const prompt = 'The old man looked at the sea and';
      const body = { model: 'winnow-tiny', prompt, temperature: 0, max_tokens: 3 };
      const stream = await ask('completions', { ...body, max_tokens: 300, stream: true });
      child.kill('SIGTERM');
      const events = await stream.text();
      expect(events).toMatch(/"finish_reason":"(stop|length)"[\s\S]*data: \[DONE\]\n\n$/);
      const { code, stderr } = await ended;
      expect(code).toBe(0);
      expect(stderr).toContain('POST /v1/completions 200');
      // the check below detects what is loaded
      expect(stderr).toContain('looks for @winnow/server');
      expect(stderr).toContain('looks for fastify');
      await expect(fetch(`${url}/health`)).rejects.toThrow();
    },
  );

  // `run` and `--version` below do not load it either
  test('is not loaded by its help', async () => {
    expect(await runProcess(['serve', '--help'], '', noticing)).toMatchObject({ code: 0, stderr: '' });
  });
});

test('the process: prints what it generates, without the server', async () => {
  const argv = ['run', '-n', '3', '--temperature', '0'];
  const { code, stdout, stderr } = await runProcess(argv, 'The old man looked at the sea and\n', noticing);
  expect({ code, stdout, stderr }).toEqual({ code: 0, stdout: ' the other.', stderr: '' });
});

test('the process: prints its version without loading the server', async () => {
  expect(await runProcess(['--version'], '', noticing)).toEqual({
    code: 0,
    stdout: expect.stringMatching(/^\d+\.\d+\.\d+\n$/),
    stderr: '',
  });
});

test.each([
  [['run', '-p', 'x', '-n', 'abc'], 2],
  [['run', '/no/such/model', '-p', 'x'], 1],
  [['run', fileURLToPath(import.meta.url), '-p', 'x'], 3],
  [['run', '-p', 'a b c d e f g h', '-c', '4'], 4],
])('%j exits with %d and one line', async (argv, expected) => {
  const { code, stdout, stderr } = await runCli(engine, argv);
  expect({ code, stdout }).toEqual({ code: expected, stdout: '' });
  expect(stderr).toMatch(/^winnow: [^\n]+\n$/);
});

test.skipIf(process.platform === 'win32')('the process: SIGINT ends a generation with 130', async () => {
  const { child, ended } = start(endless);
  await once(child.stdout, 'data');
  child.kill('SIGINT');
  const { code, stdout, stderr } = await ended;
  expect({ code, stderr }).toEqual({ code: 130, stderr: 'winnow: interrupted\n' });
  expect(stdout.length).toBeGreaterThan(0);
});

test('the process: a repository is read from the hub cache, without a request when offline', async () => {
  const cache = mkdtempSync(join(tmpdir(), 'winnow-cli-'));
  try {
    const commit = '0123456789abcdef0123456789abcdef01234567';
    const repo = join(cache, 'models--some--model');
    cpSync(fileURLToPath(new URL('.', demoModelUrl)), join(repo, 'snapshots', commit), { recursive: true });
    mkdirSync(join(repo, 'refs'));
    writeFileSync(join(repo, 'refs', 'main'), commit);
    const env = { HF_HUB_OFFLINE: '1', HF_HUB_CACHE: cache };
    const prompt = ['-p', 'The old man looked at the sea and', '-n', '3', '--temperature', '0'];
    const found = await runProcess(['run', 'hf:some/model@main', ...prompt], '', env);
    expect(found).toEqual({ code: 0, stdout: ' the other.', stderr: '' });
    const missing = await runProcess(['run', 'hf:some/other', ...prompt], '', env);
    expect(missing).toMatchObject({
      code: 1,
      stdout: '',
      stderr: expect.stringMatching(/^winnow: some\/other: .+\n$/),
    });
  } finally {
    rmSync(cache, { recursive: true });
  }
});

test('the process: exits quietly when its reader closes', async () => {
  const { child, ended } = start(endless);
  await once(child.stdout, 'data');
  child.stdout.destroy();
  expect(await ended).toMatchObject({ code: 0, stderr: '' });
});

test.skipIf(process.platform === 'win32')(
  'the process: SIGINT stops a chat reply, the next line is answered',
  async () => {
    const { child, texts, ended } = start(['chat', '-n', '-1', '--ignore-eos', '--seed', '1']);
    child.stdin.write('Once upon a time\n');
    await once(child.stdout, 'data');
    child.kill('SIGINT');
    while (!texts.stderr.includes('stopped')) await once(child.stderr, 'data');
    child.stdin.end('/history\n');
    const { code, stdout, stderr } = await ended;
    expect({ code, stderr }).toEqual({ code: 0, stderr: 'winnow: stopped\n' });
    expect(stdout).toContain('user: Once upon a time\nassistant: ');
  },
);

test.skipIf(process.platform === 'win32')(
  'the process: a session that does not fit on the disk is reported after the output and leaves the old file',
  async () => {
    const folder = mkdtempSync(join(tmpdir(), 'winnow-cli-'));
    try {
      const file = join(folder, 'story');
      writeFileSync(file, 'old');
      const argv = ['run', '-p', 'Hi', '-n', '2', '--json', '--save-session', file];
      // files of this process may have 4 KiB
      const child = spawn('sh', ['-c', 'ulimit -f 8 && exec "$@"', 'sh', process.execPath, program, ...argv]);
      const { code, stdout, stderr } = await collect(child).ended;
      expect(JSON.parse(stdout)).toMatchObject({ finishReason: 'length' });
      expect([code, stderr]).toEqual([1, expect.stringMatching(/^winnow: --save-session: nothing was saved: .*\n$/)]);
      expect([readdirSync(folder), readFileSync(file, 'utf8')]).toEqual([['story'], 'old']);
    } finally {
      rmSync(folder, { recursive: true });
    }
  },
);

test.skipIf(process.platform !== 'linux')('the process: output that does not fit on the disk is an error', async () => {
  const argv = ['run', '-p', 'Hi', '-n', '2', '--json'];
  const child = spawn('sh', ['-c', 'exec "$@" > /dev/full', 'sh', process.execPath, program, ...argv]);
  const { code, stderr } = await collect(child).ended;
  expect([code, stderr]).toEqual([1, expect.stringMatching(/^winnow: .*ENOSPC.*\n$/)]);
});
