/**
 * Tools of MCP servers in a chat: real servers, as processes where that matters and over HTTP elsewhere; the demo model where
 * it has to write a call itself.
 */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as engine from '@winnow/engine';
import type { ChatMessage } from '@winnow/engine';
import { IoError } from '@winnow/tensor';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createFakeEngine, type FakeOptions } from '../fake-engine.js';
import { runCli, TestHost } from '../run-cli.js';
import { serveHttp, type HttpServer } from './demo-server.js';

const program = fileURLToPath(new URL('./demo-server.ts', import.meta.url));
let folder = '';
let log = '';
let numLogs = 0;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'winnow-mcp-'));
});
let servers: HttpServer[] = [];
beforeEach(() => {
  log = join(folder, `log ${(numLogs += 1)}`);
});
afterEach(async () => {
  await Promise.all(servers.map((server) => server.close()));
  servers = [];
});
afterAll(() => rmSync(folder, { recursive: true }));

/** Starts a server until the end of the test. */
async function serve(options: Partial<Parameters<typeof serveHttp>[0]> = {}): Promise<string> {
  const server = await serveHttp({ name: 'demo', log, ...options });
  servers.push(server);
  return server.url;
}

const command = (transport: string, ...tool: readonly string[]): string =>
  [process.execPath, program, transport, 'demo', log, ...tool].map((word) => `"${word}"`).join(' ');
const calls = (): string[] => (existsSync(log) ? readFileSync(log, 'utf8').trim().split('\n') : []);

const call = (name: string, values = '{}'): string => `<tool_call>{"name":"${name}","arguments":${values}}</tool_call>`;
const weather = call('weather', '{"city":"Ulm"}');

/** Results of calls in a prompt, as a template without a place for them gets them. */
const resultsIn = (prompt: unknown): string[] =>
  (prompt as readonly ChatMessage[]).flatMap(
    ({ content }) => /^<tool_response>\n(.*)\n<\/tool_response>$/s.exec(content)?.[1] ?? [],
  );

/** A chat from a pipe in which the model is scripted. */
async function chat(address: string, replies: FakeOptions['replies'], flags: readonly string[], stdin = 'One\n') {
  const fake = createFakeEngine({ ...(replies === undefined ? {} : { replies }) });
  const run = await runCli(fake.api, ['chat', '--mcp', address, ...flags], { stdin });
  return { ...run, prompts: fake.prompts };
}

/** A chat on a terminal in which the model is scripted, at its first prompt. */
async function terminalChat(
  address: string,
  replies: FakeOptions['replies'],
  flags: readonly string[] = [],
  options: FakeOptions = {},
) {
  const fake = createFakeEngine({ ...options, ...(replies === undefined ? {} : { replies }) });
  const host = new TestHost(fake.api, { isStdoutTerminal: true });
  const running = host.run(['chat', '--mcp', address, ...flags]);
  await host.untilShown('> ');
  return { host, running, prompts: fake.prompts };
}

describe('a call that the demo model is forced to write', () => {
  const forced = ['--tool-choice', 'weather', '--temperature', '0', '-n', '64', '-c', '1024', '--stop', 'code'];
  const one = { tool: 'weather' }; // prompts of all tools are longer, and prove no more

  test('runs with consent, and the model reads its result', async () => {
    const host = new TestHost(engine, { isStdoutTerminal: true });
    const running = host.run(['chat', '--mcp', command('stdio', 'weather'), ...forced]);
    await host.untilShown('> ');
    await host.enter(
      'How is the weather?',
      'The model wants to call weather of the server "demo"',
      '"city": "',
      'Call weather?',
    );
    expect(calls()).toEqual([]);
    await host.enter('a', 'The ', '> ');
    await host.enter('/history', 'assistant calls weather {"city":', 'tool weather: It rains.\n', 'assistant: ', '> ');
    host.stdin.write('\u0004');
    const { code, stderr } = await running;
    expect([code, stderr]).toEqual([0, expect.stringContaining('weather returned 9 characters')]);
    expect(calls()[0]).toMatch(/^weather \{"city":"(Ulm|Bern)"\}$/);
  });

  test('does not run without a terminal, except by --mcp-allow', async () => {
    const argv = ['chat', '--mcp', await serve(one), ...forced];
    const refused = await runCli(engine, argv, { stdin: 'How is the weather?\n/history\n' });
    expect([refused.code, calls()]).toEqual([0, []]);
    expect(refused.stderr).toContain('did not call weather');
    expect(refused.stderr).toContain('--mcp-allow weather allows it');
    expect(refused.stdout).toContain('tool weather: Error: the user did not agree to this call.\n');
    const allowed = await runCli(engine, [...argv, '--mcp-allow', 'weather'], {
      stdin: 'How is the weather?\n/history\n',
    });
    expect([allowed.code, calls()[0]]).toEqual([0, expect.stringMatching(/^weather /)]);
    expect(allowed.stdout).toContain('tool weather: It rains.\n');
  });

  test('that is cut by the token limit does not run', async () => {
    const flags = ['--mcp', await serve(one), '--mcp-allow', 'weather', ...forced, '-n', '3'];
    const { code, stderr } = await runCli(engine, ['chat', ...flags], { stdin: 'How is the weather?\n' });
    expect([code, calls()]).toEqual([4, []]);
    expect(stderr).toContain('the text is unfinished: it was cut by the token limit');
  });
});

test('consent: no, always, and lines that are no answer', async () => {
  const { host, running, prompts } = await terminalChat(await serve(), [
    [weather],
    ['No.'],
    [weather, weather],
    ['Fine.'],
    [weather],
  ]);
  await host.enter('One', 'Call weather? ');
  await host.enter('maybe', 'Call weather? ');
  await host.enter('n', 'No.\n', '> ');
  expect(calls()).toEqual([]);
  await host.enter('Two', 'Call weather? ');
  await host.enter('a', 'Fine.\n', '> ');
  await host.enter('Three', 'Hello world\n', '> ');
  host.stdin.write('\u0004');
  const { code, stdout } = await running;
  expect([code, stdout.split('Call weather?').length - 1]).toEqual([0, 3]);
  expect(calls()).toEqual(Array.from({ length: 3 }, () => 'weather {"city":"Ulm"}'));
  const refused = 'Error: the user did not agree to this call.';
  expect(resultsIn(prompts[3]?.prompt)).toEqual([refused, 'It rains.', 'It rains.']);
});

test('consent: what was typed before the question does not answer it', async () => {
  const { host, running } = await terminalChat(await serve(), [[weather], ['No.']]);
  host.stdin.write('One\ry\ry\ry');
  await host.untilShown('Call weather? ');
  await host.enter('', 'Call weather? ');
  expect(calls()).toEqual([]);
  await host.enter('n', 'No.\n');
  host.stdin.write('\u0004');
  expect((await running).code).toBe(0);
  expect(calls()).toEqual([]);
});

test('consent ends when the server changes the definition of a tool; new tools appear', async () => {
  const replies = [[weather, call('grow')], ['Done.'], [weather, call('late')], ['Done.']];
  const { host, running } = await terminalChat(command('stdio'), replies);
  await host.enter('One', 'Call weather? ');
  await host.enter('a', 'Call grow? ');
  await host.enter('y', 'Done.\n', '> ');
  while (!host.shown.includes('  late')) {
    host.stdin.write('/mcp\r'); // the server's notice is on its way
    await host.untilShown('  weather', '> ');
    await new Promise((resolve) => setImmediate(resolve));
  }
  await host.enter('Two', 'Call weather? ');
  await host.enter('n', 'Call late? ');
  await host.enter('y', 'Done.\n');
  host.stdin.write('\u0004');
  expect(await running).toMatchObject({ code: 0, stderr: expect.stringContaining('late returned 13 characters') });
  expect(calls()).toEqual(['weather {"city":"Ulm"}', 'grow {}', 'late {}']);
});

test('the question hides nothing: control characters and invisible ones are escapes, names have no line ends', async () => {
  const values = '{"city":"\\u001b[2J\\u202eUlm\\u2028\\u009b\\u200b\\u3164"}';
  const { host, running } = await terminalChat(await serve(), [[call('weather', values), call('two-lines')], ['No.']]);
  await host.enter('One', '"city": "\\u001b[2J\\u{202e}Ulm\\u{2028}\\u009b\\u{200b}\\u{3164}"', 'Call weather? ');
  await host.enter('n', 'The model wants to call two-lines of the server', 'Call two-lines? ');
  host.stdin.write('\u0004');
  expect((await running).code).toBe(0);
  expect(calls()).toEqual([]);
});

test('a server of the older protocol has the environment of the program, and --mcp-env changes it', async () => {
  const fake = createFakeEngine({ replies: [[weather], ['Done.']] });
  const argv = ['chat', '--mcp', command('legacy'), '--mcp-allow', 'weather', '--mcp-env', 'WEATHER=It = hails.'];
  const pidFile = `${log}.pid`;
  await runCli(fake.api, argv, { stdin: 'One\n', env: { WEATHER: 'It snows.', PID_FILE: pidFile } });
  expect(resultsIn(fake.prompts[1]?.prompt)).toEqual(['It = hails.']);
  expect(existsSync(pidFile)).toBe(true);
});

describe('results', () => {
  test('texts and other content, errors, structured content, several calls of one answer', async () => {
    const reply = ['Now: ', weather, call('chart'), call('fail')];
    const allow = ['weather', 'chart', 'fail'].flatMap((name) => ['--mcp-allow', name]);
    const { code, stdout, prompts } = await chat(await serve(), [reply, ['Done.']], allow);
    expect([code, stdout]).toEqual([0, 'Now:\nDone.\n']);
    const chart = 'A chart:\n[image: image/png, 4 bytes]\n[link: data, file:///chart.csv]\nSome notes';
    expect(resultsIn(prompts[1]?.prompt)).toEqual(['It rains.', chart, 'Error: no such city']);
    expect(calls()).toHaveLength(3);
  });

  test('a model that never stops calling', async () => {
    const { code, stderr } = await chat(
      await serve(),
      Array.from({ length: 99 }, () => [weather]),
      ['--mcp-allow', 'weather'],
    );
    expect([code, calls().length]).toEqual([4, 32]);
    expect(stderr).toContain('calls before a reply: needed 33 rounds');
  });
});

test('an error after a call: what was called stays in the conversation, and the chat continues', async () => {
  let numPieces = 0;
  const beforePiece = (): void => {
    if ([2, 4].includes((numPieces += 1))) throw new IoError({ source: 'model.gguf', message: 'unplugged' });
  };
  const replies = [[weather], ['never'], [weather], ['never'], ['Done.']];
  const { host, running, prompts } = await terminalChat(await serve(), replies, ['--mcp-allow', 'weather'], {
    beforePiece,
  });
  await host.enter('One', '> ');
  await host.enter('/regen', '> ');
  await host.enter('Two', 'Done.\n', '> ');
  await host.enter('/history', 'user: One', 'assistant calls weather', 'tool weather: It rains.\n', 'user: Two', '> ');
  host.stdin.write('\u0004');
  const { code, stderr } = await running;
  expect([code, stderr]).toEqual([0, expect.stringContaining('winnow: model.gguf: unplugged')]);
  expect(calls()).toHaveLength(2);
  expect(resultsIn(prompts[2]?.prompt)).toEqual([]); // of the first call, whose reply is dropped
  expect(resultsIn(prompts[4]?.prompt)).toEqual(['It rains.']);
});

test('servers that hang: Ctrl-C cancels the call, and the chat continues', async () => {
  const { host, running, prompts } = await terminalChat(
    command('stdio'),
    [[call('hang'), weather], ['Yes.']],
    ['--mcp-allow', 'hang'],
  );
  host.stdin.write('One\r');
  while (calls().length === 0) await new Promise((resolve) => setImmediate(resolve));
  host.stdin.write('\u0003');
  await host.untilShown('> ');
  await host.enter('Two', 'Yes.\n', '> ');
  host.stdin.write('\u0004');
  const { code, stderr } = await running;
  expect([code, stderr]).toEqual([0, expect.stringContaining('winnow: stopped\n')]);
  expect(calls()).toEqual(['hang {}', 'cancelled hang']);
  const stopped = 'Error: the user stopped this call.';
  expect(resultsIn(prompts[1]?.prompt)).toEqual([stopped, stopped]);
});

test('servers that end: an error with their last output, their tools are gone, and the chat continues', async () => {
  const { code, stdout, stderr, prompts } = await chat(
    command('stdio'),
    [[call('crash')], ['Oh.']],
    ['--mcp-allow', 'crash'],
    'One\n/mcp\nTwo\n',
  );
  expect([code, stdout]).toEqual([0, expect.stringMatching(/^Oh\.\ndemo \(.*\): ended\nHello world\n$/)]);
  expect(stderr).toContain('the server has ended; its last output: out of luck; its tools are gone');
  expect(resultsIn(prompts[1]?.prompt)).toEqual(['Error: Connection closed']);
});

test('servers with a tool whose schema cannot be enforced: it is left out and named once', async () => {
  const { stdout, stderr } = await chat(await serve(), undefined, [], 'One\nTwo\n/mcp\n');
  expect(stderr.match(/the tool odd cannot be used/g)).toHaveLength(1);
  expect(stdout).toMatch(/ {2}odd +not usable: .*unevaluatedProperties/);
  expect(stdout).toMatch(/ {2}weather +Weather of a city\n/);
});

test('servers with the same tools: names begin with that of the server', async () => {
  const flags = ['--mcp', await serve({ name: 'other one' }), '--mcp-allow', 'other-one_weather'];
  const { code, stderr } = await chat(await serve(), [[call('other-one_weather', '{"city":"Ulm"}')], ['Done.']], flags);
  expect([code, calls()]).toEqual([0, ['weather {"city":"Ulm"}']]);
  expect(stderr).toContain('calls other-one_weather {"city":"Ulm"}');
});

test.each([
  ['no-such-program', [], 1, /^winnow: MCP server no-such-program: .*ENOENT.*\n$/],
  [`"${process.execPath}" -e "console.error('no key'), process.exit(3)"`, [], 1, /its last output: no key\n$/],
  ['http://127.0.0.1:1/mcp', [], 1, /^winnow: MCP server http:\/\/127\.0\.0\.1:1\/mcp: .*\n$/],
  ['""', [], 2, /^winnow: --mcp: expected a command or a URL, got nothing\n$/],
  ['http://', [], 2, /^winnow: --mcp: expected a URL, got 'http:\/\/'\n$/],
])('servers that cannot be used end the program: %s', async (address, flags, code, message) => {
  const { api, loads } = createFakeEngine();
  const run = await runCli(api, ['chat', '--mcp', address, ...flags], { stdin: 'One\n' });
  expect(run).toEqual({ code, stdout: '', stderr: expect.stringMatching(message) });
  expect(loads).toEqual([]);
});

test.each([
  [['--mcp-allow', 'weather'], '--mcp-allow: expected --mcp with it, got none'],
  [['--tool-choice', 'required'], '--tool-choice: expected --mcp with it, got none'],
  [['--mcp-header', 'A: b'], '--mcp-header: expected --mcp with it, got none'],
  [['--mcp-env', 'A=b'], '--mcp-env: expected --mcp with it, got none'],
  [['--mcp', 'x', '--mcp-env', 'A'], '--mcp-env: expected NAME=VALUE'],
  [['--mcp', 'http://a/', '--mcp-header', 'secret'], "--mcp-header: expected 'NAME: VALUE' or 'URL NAME: VALUE'"],
  [['--mcp', 'x', '--mcp-header', 'A: b'], '--mcp-header: expected a URL of --mcp, got 0 URLs and the header A'],
  [
    ['--mcp', 'http://a/', '--mcp', 'http://b/', '--mcp-header', 'A: b'],
    "--mcp-header: expected 'URL A: VALUE' with a URL of --mcp, got 2 URLs and the header A",
  ],
  [
    ['--mcp', 'http://a/', '--mcp-header', 'http://b/ A: b'],
    "--mcp-header: expected 'URL A: VALUE' with a URL of --mcp, got 1 URLs and the header A",
  ],
  [
    ['--mcp', 'http://a/', '--mcp-header', 'A: ${NO_SUCH}'],
    '--mcp-header: expected a variable of the environment, got ${NO_SUCH}, which is not set',
  ],
  [['--mcp', 'x', '--grammar', 'root ::= "a"'], '--grammar: cannot be combined with --mcp'],
])('%j is rejected', async (flags, message) => {
  const run = await runCli(createFakeEngine().api, ['chat', ...flags], { stdin: 'One\n' });
  expect(run).toMatchObject({ code: 2, stderr: `winnow: ${message}\n` });
});

test('a tool that no server has cannot be allowed', async () => {
  expect(await chat(await serve(), undefined, ['--mcp-allow', 'wether'])).toMatchObject({
    code: 2,
    stderr: "winnow: --mcp-allow: expected weather, chart, fail, hang, crash, grow, odd, two-lines, got 'wether'\n",
  });
});

describe('a server at a URL', () => {
  // not a process, whose start on a busy machine may exceed the limit
  test('hangs until the time limit ends the call', async () => {
    const url = await serve({ name: 'remote' });
    const fake = createFakeEngine({ replies: [[call('hang')], ['Done.']] });
    const argv = ['chat', '--mcp', url, '--mcp-allow', 'hang', '--mcp-timeout', '1'];
    const { code, stdout, stderr } = await runCli(fake.api, argv, { stdin: 'One\n' });
    expect([code, stdout]).toEqual([0, 'Done.\n']);
    expect(stderr).toMatch(/hang failed: MCP server remote: .*timed out/i);
  });

  test('that wants a token gets it from the environment, and says what is wrong without', async () => {
    const url = await serve({ token: 'secret' });
    const fake = createFakeEngine({ replies: [[weather], ['Done.']] });
    const argv = ['chat', '--mcp', url, '--mcp-allow', 'weather'];
    const options = { stdin: 'One\n', env: { KEY: 'secret' } };
    const named = ['--mcp', await serve(), '--mcp-header', `${url} Authorization: Bearer \${KEY}`];
    const run = await runCli(fake.api, [...argv, '--mcp-header', 'Authorization: Bearer ${KEY}'], options);
    expect([run.code, resultsIn(fake.prompts[1]?.prompt)]).toEqual([0, ['It rains.']]);
    expect(await runCli(createFakeEngine().api, ['chat', '--mcp', url, ...named], options)).toMatchObject({ code: 0 });
    const refused = await runCli(createFakeEngine().api, argv, options);
    expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining('requires authorization (HTTP 401)') });
  });

  test('lists, is called, and its end is an error of the call', async () => {
    const url = await serve({ name: 'remote' });
    const fake = createFakeEngine({ replies: [[weather], ['Done.'], [weather], ['Oh.']] });
    const host = new TestHost(fake.api, { isStdoutTerminal: true });
    const running = host.run(['chat', '--mcp', url, '--mcp-allow', 'weather']);
    await host.untilShown('> ');
    await host.enter('One', 'Done.\n', '> ');
    expect(calls()).toEqual(['weather {"city":"Ulm"}']);
    await servers.pop()?.close();
    await host.enter('Two', 'Oh.\n', '> ');
    host.stdin.write('\u0004');
    const { code, stderr } = await running;
    expect([code, stderr]).toEqual([0, expect.stringMatching(/weather failed: MCP server remote: .*ECONN/)]);
  });
});
