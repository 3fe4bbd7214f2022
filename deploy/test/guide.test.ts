/** Runs the commands of docs/guides/more-than-one-machine.md, with small models and files, and with loopback ports. */
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  findProgram,
  freePort,
  haproxyProgram,
  postgresProgram,
  redisProgram,
  repoRoot,
  startPostgresServer,
  startS3Server,
  testCoverage,
} from '@winnow/test-utils';
import { createS3BlobStore } from '@winnow/blobs-s3';
import { parseArgsStringToArgv } from 'string-argv';
import { afterAll, beforeAll, expect, test } from 'vitest';

const guide = readFileSync(join(repoRoot, 'docs', 'guides', 'more-than-one-machine.md'), 'utf8');
const main = join(repoRoot, 'apps', 'cli', 'dist', 'main.js');
const demoModel = join(repoRoot, 'packages', 'demo-model', 'src', 'model');
const fixtures = join(repoRoot, 'packages', 'engine', 'test', 'fixtures', 'arch');
/** Those of engines of containers, which are not to be had here; `lint.test.ts` checks their files. */
const notHere = new Set(['docker', 'kubectl']);
/** Runs commands that need a shell; a test of their own has them. */
const shell = ['sh', '-c'];
const needed = { redisProgram, postgresProgram, haproxyProgram };
const missing = Object.entries(needed).flatMap(([name, path]) => (path === undefined ? [name] : []));

interface Section {
  readonly title: string;
  readonly commands: readonly (readonly string[])[];
}

function sectionsOf(markdown: string): Section[] {
  return markdown.split(/^## /m).flatMap((text) => {
    const blocks = [...text.matchAll(/^```console(?: no-run)?\n([^]*?)^```$/gm)].map(([, block = '']) => block);
    const commands = blocks
      .flatMap((block) => block.split('\n'))
      .filter((line) => line.startsWith('$ '))
      .flatMap((line) =>
        line
          .slice(2)
          .replace(/\s+#.*$|\s*&\s*$/, '')
          .split(' && '),
      )
      .map((line) => (line.includes('$(') ? [...shell, line] : parseArgsStringToArgv(line)));
    return commands.length === 0 ? [] : [{ title: text.slice(0, text.indexOf('\n')), commands }];
  });
}

/** What the guide names, and what it is here. */
const names = new Map<string, string>();
let environment: Readonly<Record<string, string>> = {};
const stops: (() => Promise<void> | void)[] = [];

beforeAll(async () => {
  if (testCoverage !== 'full' || missing.length > 0) return;
  const s3 = await startS3Server();
  const postgres = await startPostgresServer();
  stops.push(s3.close, postgres.stop);
  environment = s3.environment;
  const requests = Array.from({ length: 6 }, (_, index) => {
    const body = { prompt: `The number ${index}`, max_tokens: 3 };
    return `${JSON.stringify({ custom_id: `${index}`, method: 'POST', url: '/v1/completions', body })}\n`;
  });
  writeFileSync(join(inputs, 'requests.jsonl'), requests.join(''));
  writeFileSync(join(inputs, 'corpus.txt'), 'the small red boat\n'.repeat(80));
  writeFileSync(
    join(inputs, 'book.txt'),
    'Once upon a time there was a little girl who lived near the sea. '.repeat(30),
  );
  cpSync(join(repoRoot, 'deploy', 'haproxy', 'haproxy.cfg'), join(inputs, 'haproxy.cfg'));
  s3.write('requests.jsonl', requests.join(''));
  const { AWS_ACCESS_KEY_ID: accessKeyId = '', AWS_SECRET_ACCESS_KEY: secretAccessKey = '' } = s3.environment;
  const credentials = { accessKeyId, secretAccessKey };
  const models = createS3BlobStore(`s3://${s3.bucket}/models`, { endpoint: s3.url, region: 'us-east-1', credentials });
  for (const file of readdirSync(demoModel)) await models.write(file, [readFileSync(join(demoModel, file))]);
  // the first that a word contains
  names.set('s3://corpus/models/model.gguf', `s3://${s3.bucket}/models/`);
  names.set('model.gguf', demoModel);
  names.set('./bge-small-en-v1.5', join(fixtures, 'bert-mean', 'model.gguf'));
  names.set('s3://corpus', `s3://${s3.bucket}`);
  names.set('postgres://winnow:secret@10.0.0.5/jobs', postgres.url);
  names.set('redis://:secret@10.0.0.5', `redis://:secret@127.0.0.1:${await freePort()}`);
  for (const port of ['8081', '8082']) names.set(port, String(await freePort()));
  names.set('0.0.0.0', '127.0.0.1');
});
afterAll(async () => {
  for (const stop of stops) await stop();
  rmSync(inputs, { recursive: true, force: true });
});
const inputs = mkdtempSync(join(tmpdir(), 'winnow-guide-'));

function here(word: string): string {
  for (const [name, actual] of names) if (word.includes(name)) return word.replace(name, actual);
  return word === '/var/lib/winnow' ? 'batches' : word;
}

/** What goes on until it is ended. */
const goesOn = new Set(['serve', 'route', 'worker']);

interface Running {
  readonly command: string;
  readonly goesOn: boolean;
  readonly child: ChildProcess;
  readonly output: () => string;
}

function start(argv: readonly string[], cwd: string): Running {
  const [program = '', ...rest] = argv;
  const { PATH = '', NODE_COMPILE_CACHE = '' } = process.env;
  const env = { PATH, NODE_COMPILE_CACHE, HOME: cwd, XDG_CACHE_HOME: cwd, ...environment };
  const [file, args] =
    program === 'winnow' ? [process.execPath, [main, ...rest]] : [findProgram(program, ['/usr/sbin']) ?? program, rest];
  const child = spawn(file, args, { cwd, env, stdio: ['ignore', 'pipe', 'pipe'] });
  stops.unshift(() => void child.kill('SIGKILL'));
  let text = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (part: string) => (text += part));
  return { command: argv.join(' '), goesOn: goesOn.has(rest[0] ?? ''), child, output: () => text };
}

/** Servers, workers and routers have started when they print. */
async function untilPrinted({ child, output }: Running): Promise<void> {
  const ended = once(child, 'exit').then(() => expect.unreachable(output()));
  ended.catch(() => {});
  while (!/listening on|"waiting":/.test(output())) await Promise.race([once(child.stdout ?? child, 'data'), ended]);
}

async function startRedis(argv: readonly string[], cwd: string): Promise<void> {
  const { port } = new URL(names.get('redis://:secret@10.0.0.5') ?? '');
  const words = argv.map((word) => (word === '10.0.0.5' ? '127.0.0.1' : word));
  start([...words, '--port', port, '--dir', cwd], cwd);
}

/** Makes commands tell that they have started, and short. */
const extraFlags: Readonly<Record<string, readonly string[]>> = {
  serve: ['-q'],
  route: ['-q'],
  worker: ['--json', '--report-every', '0.2'],
  eval: ['--parts', 'logits', '--tokens', '128', '--policies', 'streaming'],
};

/** @returns what has to end by itself, or goes on */
async function runCommand(argv: readonly string[], cwd: string): Promise<Running | undefined> {
  const [program = '', kind = ''] = argv;
  if (program === 'redis-server') return void (await startRedis(argv, inputs));
  if (program === 'haproxy' && !argv.includes('-c')) return undefined; // the addresses are those of machines; see haproxy.test.ts
  const words = argv.map(here);
  const place = ['serve', 'route'].includes(kind) && !argv.includes('--port') ? ['--port', '0'] : [];
  const running = start([...words, ...(extraFlags[kind] ?? []), ...place], cwd);
  if (goesOn.has(kind)) await untilPrinted(running);
  return running;
}

/** SIGTERM ends what goes on. */
async function checkEnd({ command, goesOn: isEndless, child, output }: Running): Promise<void> {
  if (isEndless) child.kill('SIGTERM');
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  expect([command, child.exitCode, output()]).toEqual([command, 0, output()]);
}

const sections = sectionsOf(guide);

test('the guide goes from one command to Kubernetes', () => {
  expect(sections[0]?.commands).toEqual([['winnow', 'batch', 'requests.jsonl']]);
  expect(sections.at(-1)?.title).toBe('Kubernetes');
  const programs = new Set(sections.flatMap(({ commands }) => commands.map(([program = '']) => program)));
  expect([...programs].filter((each) => !notHere.has(each)).toSorted()).toEqual([
    'haproxy',
    'redis-server',
    'sh',
    'winnow',
  ]);
});

test.skipIf(findProgram('openssl') === undefined)('the keys of the compose file are random', () => {
  const cwd = mkdtempSync(join(tmpdir(), 'winnow-guide-'));
  mkdirSync(join(cwd, 'deploy'));
  const commands = sections.flatMap((section) => section.commands).filter(([program]) => program === shell[0]);
  expect(commands).toHaveLength(1);
  for (const [program = '', ...rest] of commands) execFileSync(program, rest, { cwd });
  const settings = readFileSync(join(cwd, 'deploy', '.env'), 'utf8');
  rmSync(cwd, { recursive: true });
  expect(settings).toMatch(/^WINNOW_API_KEY=[0-9a-f]{32}\nQUEUE_PASSWORD=[0-9a-f]{32}\nOBJECTS_SECRET=[0-9a-f]{32}\n$/);
  expect(new Set(settings.match(/[0-9a-f]{32}/g)).size).toBe(3);
});

/** They take minutes. */
if (testCoverage === 'full') runCommands();

function runCommands(): void {
  const runnable = sections
    .map(
      ({ title, commands }) =>
        [title, commands.filter(([program = '']) => !notHere.has(program) && program !== shell[0])] as const,
    )
    .filter(([, commands]) => commands.length > 0);

  test.skipIf(missing.length > 0).each(runnable)('the commands of "%s"', async (_title, commands) => {
    const cwd = mkdtempSync(join(tmpdir(), 'winnow-guide-'));
    cpSync(inputs, cwd, { recursive: true });
    const running: Running[] = [];
    try {
      // a batch may wait for the workers of later commands
      for (const command of commands) {
        const started = await runCommand(command, cwd);
        if (started !== undefined) running.push(started);
      }
      for (const each of running.toSorted((a, b) => Number(a.goesOn) - Number(b.goesOn))) await checkEnd(each);
    } finally {
      rmSync(cwd, { recursive: true, force: true });
    }
  });
}
