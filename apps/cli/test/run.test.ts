import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CapacityError, FormatError, IoError } from '@winnow/tensor';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createFakeEngine } from './fake-engine.js';
import { runCli, TestHost } from './run-cli.js';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'winnow-cli-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

test('writes the text and nothing else', async () => {
  const fake = createFakeEngine();
  expect(await runCli(fake.api, ['run', '-p', 'Hi'])).toEqual({ code: 0, stdout: 'Hello world', stderr: '' });
  expect(fake.disposed.count).toBe(1);
});

test('flags are passed to the engine and override recommendations of the model', async () => {
  const fake = createFakeEngine();
  const flags =
    'run model.gguf -p Hi -n 5 -c 32 -b 8 --temp 0.1 --top-k 3 --min-p 0.2 --repeat-penalty 1.1 --repeat-last-n -1 ' +
    '--presence-penalty -0.5 --frequency-penalty 0.25 -s 9 --ignore-eos --stop END -r User: --overflow truncate-middle ' +
    '--kv-dtype f16 --memory 2GB --activations f32 --native off --profile -q';
  expect((await runCli(fake.api, flags.split(' '))).code).toBe(0);
  expect(fake.loads[0]).toMatchObject({
    location: 'model.gguf',
    options: {
      context: 32,
      batchSize: 8,
      kvCache: { dtype: 'f16' },
      memory: { budget: 2e9 },
      activations: 'f32',
      native: false,
      profile: true,
    },
  });
  expect(fake.prompts[0]).toMatchObject({
    prompt: 'Hi',
    options: {
      maxTokens: 5,
      temperature: 0.1,
      topK: 3,
      topP: 0.9,
      minP: 0.2,
      repetitionPenalty: 1.1,
      penaltyWindow: -1,
      presencePenalty: -0.5,
      frequencyPenalty: 0.25,
      seed: 9,
      ignoreEos: true,
      stop: ['END', 'User:'],
      overflow: 'truncate-middle',
    },
  });
});

test('without flags the defaults of the engine apply: 128 tokens, a reported seed', async () => {
  const fake = createFakeEngine();
  await runCli(fake.api, ['run', '-p', 'Hi', '-s', '-1', '-c', '0']);
  const { signal, onProgress, onEvent: _onEvent, randomSeed, ...load } = fake.loads[0]?.options ?? {};
  expect([signal, onProgress, randomSeed].every((given) => given !== undefined)).toBe(true);
  expect(load).toEqual({ maxSessions: 1 });
  const { signal: _signal, onPromptProgress: _progress, ...generate } = fake.prompts[0]?.options ?? {};
  expect(generate).toEqual({ maxTokens: 128, temperature: 0.5, topP: 0.9, seed: 4711 });
  await runCli(fake.api, ['run', '-p', 'Hi', '-n', '-1']);
  expect(fake.prompts[1]?.options).not.toHaveProperty('maxTokens');
});

test('the prompt is read from a file or stdin, and required', async () => {
  const file = join(folder, 'prompt.txt');
  writeFileSync(file, 'From a file\n\n');
  const fake = createFakeEngine();
  await runCli(fake.api, ['run', '-f', file]);
  await runCli(fake.api, ['run', '-f', '-'], { stdin: 'From stdin\r\n' });
  await runCli(fake.api, ['run'], { stdin: 'Piped ü' });
  await runCli(fake.api, ['run', '-p', 'Flag'], { stdin: 'not read' });
  await runCli(fake.api, ['run', '-e', '-p', String.raw`a\nb`, '--stop', String.raw`\n\n`]);
  expect(fake.prompts.map(({ prompt }) => prompt)).toEqual(['From a file\n', 'From stdin', 'Piped ü', 'Flag', 'a\nb']);
  expect(fake.prompts[4]?.options.stop).toEqual(['\n\n']);
  const asked = await runCli(fake.api, ['run']);
  expect(asked).toMatchObject({
    code: 2,
    stderr: 'winnow: --prompt: expected a prompt from -p, -f, --tokens or a pipe, got none\n',
  });
});

test('files that are not text are rejected by name', async () => {
  const file = join(folder, 'bytes.bin');
  writeFileSync(file, Uint8Array.of(0xff, 0xfe, 0x80));
  const { api } = createFakeEngine();
  expect(await runCli(api, ['run', '-f', file])).toMatchObject({ code: 2, stderr: expect.stringContaining('UTF-8') });
  const missing = await runCli(api, ['run', '-f', join(folder, 'missing.txt')]);
  expect(missing).toMatchObject({ code: 1, stderr: expect.stringContaining('no such file') });
  if (process.platform !== 'win32') {
    const endless = await runCli(createFakeEngine().api, ['run', '-f', '/dev/zero']);
    expect(endless).toMatchObject({ code: 1, stderr: 'winnow: /dev/zero: more than 256 MiB\n' });
  }
  expect(await runCli(api, ['run', '-f', folder])).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('a folder'),
  });
});

test('--json prints one object', async () => {
  const fake = createFakeEngine({ result: { droppedTokens: 2, finishReason: 'stop' } });
  const { code, stdout } = await runCli(fake.api, ['run', '-p', 'Hi', '--json', '-q', '--profile']);
  expect(code).toBe(0);
  expect(stdout.endsWith('}\n')).toBe(true);
  expect(JSON.parse(stdout)).toEqual({
    model: 'winnow-tiny',
    text: 'Hello world',
    tokens: [1, 2],
    promptTokens: 3,
    cachedTokens: 0,
    droppedTokens: 2,
    evictedTokens: 0,
    finishReason: 'stop',
    satisfiesConstraint: true,
    seed: 4711,
    contextSize: 64,
    timings: { promptMs: 10, generateMs: 20, promptTokensPerSecond: 300, tokensPerSecond: 100 },
    speculation: null,
    backend: 'fake-backend',
    fallbacks: [],
    metrics: expect.objectContaining({ numSessions: 1 }),
    profile: [{ op: 'matmul', layer: 0, numRuns: 2, timeMs: 4, flops: 8e6, bytes: 4e6 }],
    profileByOp: [
      {
        ...{ op: 'matmul', numRuns: 2, timeMs: 4, share: 1, gflops: 2, gigabytesPerSecond: 1 },
        ...{ peakShare: null, boundBy: null },
      },
    ],
    peaks: null,
  });
});

test('--chat uses the template, and reports when there is none', async () => {
  const fake = createFakeEngine();
  await runCli(fake.api, ['run', '--chat', '--system', 'Be brief', '-p', 'Hi']);
  expect(fake.prompts[0]?.prompt).toEqual([
    { role: 'system', content: 'Be brief' },
    { role: 'user', content: 'Hi' },
  ]);
  const { api } = createFakeEngine({ hasChatTemplate: false });
  const refused = await runCli(api, ['run', '--chat', '-p', 'Hi']);
  expect(refused).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('expected a model with a chat template'),
  });
  expect((await runCli(api, ['run', '--system', 'x', '-p', 'Hi'])).code).toBe(2);
});

test('warnings and summary go to stderr, and not with --quiet', async () => {
  const { api } = createFakeEngine({ result: { droppedTokens: 7, finishReason: 'context' } });
  const argv = ['run', '-p', 'Hi', '-t', '4', '--backend', 'reference', '--overflow', 'truncate-start'];
  const piped = await runCli(api, argv);
  expect(piped.stderr.trimEnd().split('\n')).toEqual([
    'winnow: --threads 4 has no effect: the reference backend computes with one thread',
    'winnow: the prompt was too long: 7 of its tokens were dropped (--overflow truncate-start)',
    'winnow: the context of 64 tokens is full',
  ]);
  expect((await runCli(api, [...argv, '--summary'])).stderr).toContain('generated 2 (100.0 tokens/s)');
  expect((await runCli(api, [...argv, '-q'])).stderr).toBe('');
  const onTerminal = await runCli(api, argv, { isStderrTerminal: true, isStdoutTerminal: true });
  expect(onTerminal.stderr).toContain('generated 2 (100.0 tokens/s), ended by full context');
  expect(onTerminal.stdout).toBe('Hello world\n');
});

test('--tokens are used as the prompt unchanged', async () => {
  const fake = createFakeEngine();
  const { code, stdout } = await runCli(fake.api, ['run', '--tokens', '72,105', '--display-prompt']);
  expect([code, stdout]).toEqual([0, 'HiHello world']);
  expect(fake.prompts[0]?.prompt).toEqual([72, 105]);
  for (const other of [['-p', 'Hi'], ['-f', 'hi.txt'], ['--chat']]) {
    const refused = await runCli(fake.api, ['run', '--tokens', '72', ...other]);
    expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining('--tokens: cannot be combined with')]);
  }
  expect((await runCli(fake.api, ['run', '--tokens', 'x'])).code).toBe(2);
});

test('--profile prints a table, --display-prompt the prompt', async () => {
  const { api } = createFakeEngine();
  const { stdout, stderr } = await runCli(api, ['run', '-p', 'Hi: ', '--profile', '--display-prompt']);
  expect(stdout).toBe('Hi: Hello world');
  expect(stderr).toContain('matmul  2     4.0  100.0%  2.00     1.00  -');
});

test('--display-prompt stays on the screen when progress is erased', async () => {
  const host = new TestHost(createFakeEngine().api, { isStdoutTerminal: true, isStderrTerminal: true });
  const screen: string[] = [];
  for (const stream of [host.io.stdout, host.io.stderr]) {
    const write = stream.write.bind(stream) as (...rest: unknown[]) => boolean;
    stream.write = ((...rest: unknown[]) => {
      screen.push(String(rest[0]));
      return write(...rest);
    }) as typeof stream.write;
  }
  await host.run(['run', '-p', 'Hi: ', '--display-prompt']);
  const erased = screen.findLastIndex((text) => text.includes('\u001B[K'));
  expect(erased).toBeGreaterThanOrEqual(0);
  expect(screen.slice(erased + 1).join('')).toContain('Hi: Hello world');
});

test.each([
  [new FormatError({ source: 'm.gguf', byteOffset: 8, field: 'version', message: 'expected 3, got 9' }), 3],
  [new CapacityError({ resource: 'memory plan', needed: 9, available: 4, unit: 'bytes' }), 4],
  [new IoError({ source: 'm.gguf', message: 'no such file or folder' }), 1],
])('%s', async (loadError, code) => {
  const { api } = createFakeEngine({ loadError });
  const run = await runCli(api, ['run', 'm.gguf', '-p', 'Hi']);
  expect(run).toEqual({ code, stdout: '', stderr: `winnow: ${loadError.message}\n` });
});

test('a stack is printed on request only', async () => {
  const { api } = createFakeEngine({ generateError: new TypeError('boom') });
  const usual = await runCli(api, ['run', '-p', 'Hi']);
  expect(usual).toMatchObject({
    code: 1,
    stderr: 'winnow: unexpected failure: boom (WINNOW_DEBUG=1 prints the stack)\n',
  });
  const asked = await runCli(api, ['run', '-p', 'Hi'], { env: { WINNOW_DEBUG: '1' } });
  expect(asked.stderr).toMatch(/TypeError: boom\n\s+at /);
});

test('Ctrl-C keeps the text so far, then exits with 130', async () => {
  for (const json of [false, true]) {
    const fake = createFakeEngine({
      pieces: ['one', ' two', ' three'],
      beforePiece: (index) => {
        if (index === 2) host.interrupt();
      },
    });
    const host: TestHost = new TestHost(fake.api);
    const { code, stdout, stderr } = await host.run(['run', '-p', 'Hi', ...(json ? ['--json'] : [])]);
    expect([code, stderr]).toEqual([130, 'winnow: interrupted\n']);
    if (json) expect(JSON.parse(stdout)).toMatchObject({ text: 'one two', tokens: [1, 2], finishReason: 'aborted' });
    else expect(stdout).toBe('one two');
    expect(fake.disposed.count).toBe(1);
    expect(host.numListeners).toBe(0);
  }
});

test('a second Ctrl-C exits at once', async () => {
  const fake = createFakeEngine({
    beforePiece: () => {
      host.interrupt();
      expect(host.exitNowCode).toBeUndefined();
      host.interrupt();
    },
  });
  const host: TestHost = new TestHost(fake.api);
  await host.run(['run', '-p', 'Hi']);
  expect(host.exitNowCode).toBe(130);
});

test('Ctrl-C while waiting for stdin', async () => {
  const host = new TestHost(createFakeEngine().api);
  const running = host.run(['run', '-f', '-']);
  await new Promise((resolve) => setImmediate(resolve));
  host.interrupt();
  expect(await running).toMatchObject({ code: 130 });
});

test.each([['--no-mmproj'], ['--mmproj', 'b.gguf']])('%s downloads no image encoder', async (...flags) => {
  const asked: boolean[] = [];
  await runCli(createFakeEngine().api, ['run', 'owner/name:q8_0', '-p', 'Hi', ...flags], {
    download: (_request, { mmproj }) => {
      asked.push(mmproj);
      return Promise.resolve('/cache/model.gguf');
    },
  });
  expect(asked).toEqual([false]);
});

test('a repository is downloaded first', async () => {
  const fake = createFakeEngine();
  const requests: unknown[] = [];
  const run = await runCli(fake.api, ['run', 'owner/name:q8_0', '-p', 'Hi'], {
    download: (request, { mmproj }) => {
      requests.push({ ...request, mmproj });
      return Promise.resolve('/cache/model.gguf');
    },
  });
  expect(run.code).toBe(0);
  expect(requests).toEqual([{ repo: 'owner/name', revision: undefined, file: 'q8_0', mmproj: true }]);
  expect(fake.loads[0]?.location).toBe('/cache/model.gguf');
});

test('a mistyped path that looks like a repository gets an error that names both', async () => {
  const { api } = createFakeEngine();
  const download = (): Promise<never> => Promise.reject(new IoError({ source: 'models/x', message: 'not found' }));
  const ambiguous = await runCli(api, ['run', 'models/x', '-p', 'Hi'], { download });
  expect(ambiguous.stderr).toBe(
    'winnow: models/x: no such file or folder, and not a hub repository: models/x: not found\n',
  );
  expect((await runCli(api, ['run', 'hf:models/x', '-p', 'Hi'], { download })).stderr).toBe(
    'winnow: models/x: not found\n',
  );
});

test('Ctrl-C on a download says that it will resume', async () => {
  const host = new TestHost(createFakeEngine().api, {
    download: (_request, { signal }) => {
      host.interrupt();
      return Promise.reject(signal.reason as Error);
    },
  });
  expect(await host.run(['run', 'hf:owner/name', '-p', 'Hi'])).toMatchObject({
    code: 130,
    stderr: 'winnow: interrupted; the same command resumes the download\n',
  });
});

test('progress bars are drawn on a terminal only', async () => {
  const options = { download: () => Promise.resolve('m.gguf') };
  const drawing = createFakeEngine();
  const api = {
    ...drawing.api,
    loadModel: (...[location, load]: Parameters<typeof drawing.api.loadModel>) => {
      load?.onProgress?.({ loadedBytes: 1e6, totalBytes: 4e6 });
      return drawing.api.loadModel(location, load);
    },
  };
  const shown = await runCli(api, ['run', '-p', 'Hi'], { ...options, isStderrTerminal: true });
  expect(shown.stderr).toContain('25%  1 MB of 4 MB');
  expect(shown.stderr).toMatch(/1 MB of 4 MB.*prompt \.\.\./s);
  const json = await runCli(api, ['run', '-p', 'Hi', '--json'], { ...options, isStderrTerminal: true });
  expect(json.stderr).toContain('25%  1 MB of 4 MB');
  expect(JSON.parse(json.stdout)).toMatchObject({ finishReason: 'eos' });
  const quiet = await runCli(api, ['run', '-p', 'Hi', '--quiet'], { ...options, isStderrTerminal: true });
  expect(quiet.stderr).toBe('');
  expect((await runCli(api, ['run', '-p', 'Hi'], options)).stderr).toBe('');
});
