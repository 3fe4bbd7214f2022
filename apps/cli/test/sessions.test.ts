/** Saved sessions, small contexts, and dtypes of the KV cache. */
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as engine from '@winnow/engine';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createFakeEngine } from './fake-engine.js';
import { runCli, TestHost } from './run-cli.js';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'winnow-sessions-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

interface RunResult {
  readonly tokens: number[];
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly evictedTokens: number;
  readonly seed: number | null;
  readonly metrics: { readonly cache: { readonly numBlocks: number; readonly numEvictedTokens: number } };
}

async function runJson(argv: readonly string[]): Promise<RunResult> {
  const { code, stdout, stderr } = await runCli(engine, ['run', ...argv, '--json']);
  expect({ code, stderr: stderr.replaceAll(/^winnow: the context was full.*\n/gm, '') }).toEqual({
    code: 0,
    stderr: '',
  });
  return JSON.parse(stdout) as RunResult;
}

describe('winnow run on the demo model', () => {
  const drawn = ['--temperature', '1', '--top-k', '0', '--ignore-eos'];

  test('--save-session and --load-session: two runs equal one', async () => {
    const file = join(folder, 'story');
    const whole = await runJson(['-p', 'Once upon a time', '-n', '60', '-s', '7', ...drawn]);
    const first = await runJson(['-p', 'Once upon a time', '-n', '25', '-s', '7', ...drawn, '--save-session', file]);
    const rest = await runJson(['--load-session', file, '-n', '35', '--save-session', file]);
    expect([...first.tokens, ...rest.tokens]).toEqual(whole.tokens);
    expect([rest.promptTokens - rest.cachedTokens, rest.seed]).toEqual([1, null]);
    // a prompt that starts with the session reuses it
    const longer = await runJson(['-p', 'Once upon a time', '-n', '1', '--load-session', file]);
    expect(longer.cachedTokens).toBe(longer.promptTokens - 1);
    // a session with other cache options, and a file that is not a session
    const refused = await runCli(engine, ['run', '--load-session', file, '--kv-dtype', 'f16']);
    expect(refused).toMatchObject({ code: 3, stdout: '' });
    expect(refused.stderr).toMatch(
      /^winnow: [^\n]*story: session: .* the same cache flags; keyDType: expected "f16", got "f32"\n$/,
    );
    writeFileSync(join(folder, 'text'), 'x'.repeat(100));
    expect(await runCli(engine, ['run', '--load-session', join(folder, 'text')])).toMatchObject({ code: 3 });
    expect(await runCli(engine, ['run', '--load-session', join(folder, 'none')])).toMatchObject({ code: 1 });
  });

  test('--overflow: stops, fails, or continues beyond the context', async () => {
    const small = ['-p', 'Once upon a time', '-c', '48', '-s', '7', ...drawn];
    const stopped = await runJson([...small, '-n', '80', '--overflow', 'stop', '-q']);
    expect(stopped.tokens.length + stopped.promptTokens).toBe(48);
    for (const policy of ['slide', 'evict']) {
      const result = await runJson([...small, '-n', '80', '--overflow', policy]);
      expect(result.tokens).toHaveLength(80);
      expect(result.evictedTokens).toBe(result.metrics.cache.numEvictedTokens);
      expect(result.evictedTokens).toBeGreaterThan(30);
      expect(result.metrics.cache.numBlocks).toBe(1);
    }
    const refused = await runCli(engine, ['run', ...small, '-n', '80', '--overflow', 'error']);
    expect(refused.code).toBe(4);
    expect(refused.stderr).toMatch(/^winnow: --context: needed 49 tokens, available 48 tokens/);
  });

  test('--kv-dtype: separate dtypes of keys and values', async () => {
    const options = ['-p', 'Once upon a time', '-n', '6', '--temperature', '0', '--kv-dtype'];
    const pair = await runJson([...options, 'f32,bf16']);
    expect(pair.tokens).toHaveLength(6);
    expect(pair.tokens).toEqual((await runJson([...options, 'f32'])).tokens);
  });
});

test('--attention, --prefill, --decode: the policy of each phase', async () => {
  const text = 'The old man looked at the sea and said nothing for a long time. '.repeat(8);
  const options = ['-p', text, '-n', '30', '--temperature', '1', '--top-k', '0', '-s', '7', '--ignore-eos'];
  const dense = await runJson(options);
  const everything = await runJson([...options, '--prefill', 'streaming:window=2000,sinks=4']);
  expect(everything.tokens).toEqual(dense.tokens);
  const sparse = await runJson([
    ...options,
    '--attention',
    'subquadratic:window=32,block=16',
    '--decode',
    'sparq:rank=4,topk=16',
  ]);
  expect(sparse.tokens).not.toEqual(dense.tokens);
  const fake = createFakeEngine();
  await runCli(fake.api, ['run', '-p', 'x', '--attention', 'streaming:window=9,sinks=2', '--decode', 'dense']);
  expect(fake.loads[0]?.options.attention).toMatchObject({
    prefill: { kind: 'streaming', window: 9, sinks: 2 },
    decode: { kind: 'dense' },
  });
});

test('--session-key-file: only sessions signed with the key are loaded', async () => {
  const [file, plain, key, other] = ['signed', 'plain', 'key', 'other'].map((name) => join(folder, name)) as string[];
  writeFileSync(key!, Buffer.alloc(32, 7));
  writeFileSync(other!, Buffer.alloc(32, 8));
  await runJson(['-p', 'Once', '-n', '2', '--save-session', file!, '--session-key-file', key!]);
  await runJson(['-p', 'Once', '-n', '2', '--save-session', plain!]);
  await runJson(['--load-session', file!, '-n', '2', '--session-key-file', key!]);
  const load = async (...argv: string[]): Promise<readonly [number, string]> => {
    const { code, stderr } = await runCli(engine, ['run', '-n', '2', ...argv]);
    return [code, stderr];
  };
  expect(await load('--load-session', file!, '--session-key-file', other!)).toEqual([
    ...[3, expect.stringContaining('mac: expected a MAC by the given key, got one by another key')],
  ]);
  expect(await load('--load-session', plain!, '--session-key-file', key!)).toEqual([
    ...[3, expect.stringContaining('got none: the session was saved without a key')],
  ]);
  writeFileSync(other!, 'short');
  expect(await load('-p', 'x', '--save-session', plain!, '--session-key-file', other!)).toEqual([
    ...[2, expect.stringMatching(/--session-key-file: expected a file of at least 16 bytes, got 5 bytes in .*other/)],
  ]);
  expect(await load('-p', 'x', '--session-key-file', key!)).toEqual([
    ...[2, 'winnow: --session-key-file: requires --load-session or --save-session\n'],
  ]);
});

test('a stdout that is closed before the text ends: nothing is saved, and stderr says so', async () => {
  const held: { host?: TestHost } = {};
  const fake = createFakeEngine({ beforePiece: (index) => void (index === 1 && held.host?.io.stdout.destroy()) });
  held.host = new TestHost(fake.api);
  const { code, stderr } = await held.host.run(['run', '-p', 'Hi', '--save-session', 'b']);
  expect([code, fake.saved]).toEqual([1, []]);
  expect(stderr).toBe(
    'winnow: --save-session: nothing was saved: stdout was closed before the text ended, so b was not written\n',
  );
});

describe('flags', () => {
  test('a loaded session resumes with the requested options only', async () => {
    const fake = createFakeEngine();
    await runCli(fake.api, ['run', '--load-session', 'a', '-n', '3', '--top-k', '5', '--save-session', 'b']);
    const { signal: _signal, onPromptProgress: _progress, ...options } = fake.prompts[0]?.options ?? {};
    expect([fake.restored, options]).toEqual([['a'], { maxTokens: 3, topK: 5 }]);
    expect(fake.saved).toEqual([{ target: 'b', metadata: null }]);
    await runCli(fake.api, ['run', '--load-session', 'a', '-s', '9', '--kv-dtype', 'q8_0,q4_0']);
    expect(fake.prompts[1]?.options).toMatchObject({ seed: 9, maxTokens: 128 });
    expect(fake.loads[1]?.options.kvCache?.dtype).toEqual({ keys: 'q8_0', values: 'q4_0' });
  });

  test('Ctrl-C saves the session so far', async () => {
    const held: { host?: TestHost } = {};
    const fake = createFakeEngine({ beforePiece: (index) => void (index === 1 && held.host?.interrupt()) });
    held.host = new TestHost(fake.api);
    expect(await held.host.run(['run', '-p', 'Hi', '--save-session', 'b'])).toMatchObject({
      code: 130,
      stdout: 'Hello',
    });
    expect(fake.saved).toHaveLength(1);
  });

  test('chat: the session contains the messages', async () => {
    const fake = createFakeEngine();
    await runCli(fake.api, ['chat', '--system', 'Be brief.', '--save-session', 'c'], { stdin: 'One\n' });
    const messages = [
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'One' },
      { role: 'assistant', content: 'Hello world' },
    ];
    expect(fake.saved).toEqual([{ target: 'c', metadata: { messages } }]);
    const again = createFakeEngine({ savedMetadata: { messages } });
    await runCli(again.api, ['chat', '--load-session', 'c'], { stdin: 'Two\n' });
    expect(again.prompts[0]?.prompt).toEqual([...messages, { role: 'user', content: 'Two' }]);
    const none = await runCli(fake.api, ['chat', '--load-session', 'c'], { stdin: 'Two\n' });
    expect(none).toMatchObject({ code: 2, stderr: expect.stringContaining('expected the session of a chat') });
    const broken = createFakeEngine({ savedMetadata: { messages: [{ role: 1 }] } });
    expect(await runCli(broken.api, ['chat', '--load-session', 'c'], { stdin: 'Two\n' })).toMatchObject({ code: 3 });
  });

  test('chat on the demo model: the loaded conversation is cached', async () => {
    const file = join(folder, 'chat');
    const flags = ['--temperature', '0', '-n', '8'];
    const first = await runCli(engine, ['chat', ...flags, '--save-session', file], { stdin: 'What is your name?\n' });
    expect(first.code).toBe(0);
    expect(existsSync(file)).toBe(true);
    const again = await runCli(engine, ['chat', ...flags, '--load-session', file], { stdin: '/history\n/stats\n' });
    expect(again.stdout).toContain('user: What is your name?\nassistant: ');
    expect(again.stdout).toMatch(/context +[1-9]\d* of/);
    expect(readFileSync(file).length).toBeGreaterThan(1000);
  });
});
