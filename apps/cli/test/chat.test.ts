import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ChatMessage } from '@winnow/engine';
import { CapacityError } from '@winnow/tensor';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { InterruptPolicy } from '../src/chat/interrupt-policy.js';
import { createFakeEngine, type FakeOptions } from './fake-engine.js';
import { runCli, TestHost, type CliRun } from './run-cli.js';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'winnow-cli-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

const user = (content: string): object => ({ role: 'user', content });
const assistant = (content: string): object => ({ role: 'assistant', content });
const reply = assistant('Hello world');

async function chat(lines: readonly string[], options: FakeOptions = {}, flags: readonly string[] = []) {
  const fake = createFakeEngine(options);
  const run: CliRun = await runCli(fake.api, ['chat', ...flags], { stdin: lines.map((line) => `${line}\n`).join('') });
  return { ...run, prompts: fake.prompts, disposed: fake.disposed.count };
}

test('winnow chat from a pipe: each line is a message, each reply ends its line', async () => {
  const { code, stdout, stderr, prompts, disposed } = await chat(['One', '', 'Two']);
  expect({ code, stdout, stderr, disposed }).toEqual({
    code: 0,
    stdout: 'Hello world\nHello world\n',
    stderr: '',
    disposed: 1,
  });
  expect(prompts.map(({ prompt }) => prompt)).toEqual([[user('One')], [user('One'), reply, user('Two')]]);
  expect(prompts.map(({ options }) => options.seed)).toEqual([4711, 4712]);
  expect(prompts[0]?.options).toMatchObject({ maxTokens: 256, temperature: 0.5 });
});

test('winnow chat from a pipe: a backslash joins lines, two slashes begin a message with one', async () => {
  const { prompts } = await chat(['One\\', 'two', '//etc/hosts', 'open\\']);
  expect(prompts.map(({ prompt }) => (prompt as readonly ChatMessage[]).at(-1)?.content)).toEqual([
    'One\ntwo',
    '/etc/hosts',
    'open\n',
  ]);
});

test('winnow chat from a pipe: """ begins and ends a message of several lines', async () => {
  const { prompts } = await chat(['"""', 'One', '', 'two', '"""', '"""three"""', '"""four', '/five'], {});
  expect(prompts.map(({ prompt }) => (prompt as readonly ChatMessage[]).at(-1)?.content)).toEqual([
    'One\n\ntwo',
    'three',
    'four\n/five',
  ]);
});

test('winnow chat from a pipe: /system, /history, /reset, /exit', async () => {
  const lines = ['/system Be brief.', 'One', '/history', '/reset', 'Two', '/system', '/history', '/exit', 'Never'];
  const { stdout, prompts } = await chat(lines, {}, ['--system', 'Old']);
  const system = { role: 'system', content: 'Be brief.' };
  expect(prompts.map(({ prompt }) => prompt)).toEqual([
    [system, user('One')],
    [system, user('Two')],
  ]);
  expect(stdout).toBe(
    'Hello world\nsystem: Be brief.\nuser: One\nassistant: Hello world\n' +
      'Hello world\nuser: Two\nassistant: Hello world\n',
  );
});

test('winnow chat from a pipe: /regen replaces the last reply with another seed', async () => {
  const { prompts, stdout } = await chat(['One', '/regen', '/history']);
  expect(prompts.map(({ prompt }) => prompt)).toEqual([[user('One')], [user('One')]]);
  expect(prompts.map(({ options }) => options.seed)).toEqual([4711, 4712]);
  expect(stdout).toContain('user: One\nassistant: Hello world\n');
  expect(await chat(['/regen'])).toMatchObject({ code: 2, stderr: expect.stringContaining('/regen: expected') });
});

test('winnow chat from a pipe: /save and /load', async () => {
  const file = join(folder, 'talk with spaces.json');
  await chat(['/system S', 'One', `/save ${file}`]);
  const system = { role: 'system', content: 'S' };
  expect(JSON.parse(readFileSync(file, 'utf8'))).toEqual({
    model: 'winnow-tiny',
    messages: [system, user('One'), reply],
  });
  const { prompts } = await chat([`/load ${file}`, 'Two']);
  expect(prompts[0]?.prompt).toEqual([system, user('One'), reply, user('Two')]);
});

test('winnow chat from a pipe: /load rejects files that are not conversations', async () => {
  const file = join(folder, 'broken.json');
  for (const content of ['', '{}', 'null', '{"messages":[{"role":"user"}]}', '{"messages":[null]}', '{"messages":1}']) {
    writeFileSync(file, content);
    expect(await chat([`/load ${file}`])).toMatchObject({ code: 3, stderr: expect.stringContaining(file) });
  }
  expect(await chat([`/load ${join(folder, 'missing')}`])).toMatchObject({ code: 1 });
  expect(await chat(['/load'])).toMatchObject({ code: 2 });
  expect(await chat([`/save ${join(folder, 'no', 'such', 'folder')}`])).toMatchObject({ code: 1 });
});

test('winnow chat from a pipe: /help and /stats', async () => {
  const { stdout } = await chat(['/help', 'One', '/stats']);
  for (const name of ['help', 'reset', 'system', 'history', 'regen', 'save', 'load', 'stats', 'exit']) {
    expect(stdout).toContain(`/${name}`);
  }
  expect(stdout).toContain('context      3 of 64 tokens');
  expect(stdout).toContain('generated 2 (100.0 tokens/s)');
});

test('winnow chat from a pipe: the first error ends it', async () => {
  expect(await chat(['/what', 'One'])).toMatchObject({
    code: 2,
    stdout: '',
    stderr: 'winnow: /what: unknown command, see /help\n',
    disposed: 1,
  });
  const generateError = new CapacityError({ resource: 'context', needed: 9, available: 4, unit: 'tokens' });
  expect(await chat(['One'], { generateError })).toMatchObject({ code: 4 });
});

test('winnow chat from a pipe: a model without a chat template is rejected', async () => {
  expect(await chat(['One'], { hasChatTemplate: false })).toMatchObject({
    code: 2,
    stderr: 'winnow: chat: expected a model with a chat template, got fake, which has none; try winnow run\n',
  });
});

test('winnow chat from a pipe: Ctrl-C stops the reply, keeps its text, and the conversation continues', async () => {
  let numPieces = 0;
  const fake = createFakeEngine({
    pieces: ['one', ' two'],
    beforePiece: () => {
      numPieces += 1;
      if (numPieces === 2) host.interrupt();
    },
  });
  const host: TestHost = new TestHost(fake.api, { stdin: 'A\nB\n' });
  const { code, stdout, stderr } = await host.run(['chat']);
  expect({ code, stdout, stderr }).toEqual({ code: 0, stdout: 'one\none two\n', stderr: 'winnow: stopped\n' });
  expect(fake.prompts[1]?.prompt).toEqual([user('A'), assistant('one'), user('B')]);
  expect(host.numListeners).toBe(0);
});

test('winnow chat from a pipe: Ctrl-C before the first token removes the message', async () => {
  let numPieces = 0;
  const fake = createFakeEngine({
    beforePiece: () => {
      numPieces += 1;
      if (numPieces === 1) host.interrupt();
    },
  });
  const host: TestHost = new TestHost(fake.api, { stdin: 'A\nB\n' });
  expect(await host.run(['chat'])).toMatchObject({ code: 0, stderr: 'winnow: stopped\n' });
  expect(fake.prompts[1]?.prompt).toEqual([user('B')]);
});

test('winnow chat from a pipe: Ctrl-C twice exits', async () => {
  const fake = createFakeEngine({
    beforePiece: () => {
      host.interrupt();
      host.interrupt();
    },
  });
  const host: TestHost = new TestHost(fake.api, { stdin: 'A\nB\n' });
  expect(await host.run(['chat'])).toMatchObject({ code: 130 });
  expect(fake.prompts).toHaveLength(1);
  expect(host.exitNowCode).toBeUndefined();
});

describe('winnow chat on a terminal', () => {
  test('prompts, continues after errors, exits with Ctrl-D', async () => {
    const fake = createFakeEngine();
    const host = new TestHost(fake.api, { isStdoutTerminal: true });
    const running = host.run(['chat']);
    await host.untilShown('> ');
    host.stdin.write('/what\r');
    await host.untilShown('\n', '> ');
    host.stdin.write('One\r');
    await host.untilShown('Hello world\n', '> ');
    host.stdin.write('\u0004');
    const { code, stdout, stderr } = await running;
    expect(code).toBe(0);
    expect(stdout).toContain('> ');
    expect(stdout).toContain('Hello world\n');
    expect(stderr).toContain('winnow: winnow-tiny, 64 tokens of context; /help lists the commands');
    expect(stderr).toContain('winnow: /what: unknown command');
  });

  test('Ctrl-C clears the line first', async () => {
    const fake = createFakeEngine();
    const host = new TestHost(fake.api, { isStdoutTerminal: true });
    const running = host.run(['chat']);
    await host.untilShown('> ');
    host.stdin.write('half a li\u0003');
    await host.untilShown('leaves)\n', '> ');
    host.stdin.write('One\r');
    await host.untilShown('Hello world\n', '> ');
    host.stdin.write('\u0003\u0003');
    const { code, stdout } = await running;
    expect(code).toBe(130);
    expect(stdout).toContain('(Ctrl-C again or /exit leaves)');
    expect(fake.prompts.map(({ prompt }) => prompt)).toEqual([[user('One')]]);
  });
});

test('only consecutive Ctrl-C count', () => {
  const calls: string[] = [];
  let isReplying = false;
  const policy = new InterruptPolicy({
    stopReply: () => {
      calls.push('stop');
      return isReplying;
    },
    dropLine: () => calls.push('drop'),
    leave: () => calls.push('leave'),
  });
  policy.onInterrupt();
  policy.onInput();
  isReplying = true;
  policy.onInterrupt();
  policy.onInterrupt();
  expect(calls).toEqual(['stop', 'drop', 'stop', 'leave']);
});
