/** What the user of a chat sees on a real terminal. */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { demoModelUrl } from '@winnow/demo-model';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { PtySession, type PtyOptions } from './pty.js';

let folder = '';
let home = '';
let numHomes = 0;
const sessions: PtySession[] = [];
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'winnow-terminal-'));
});
beforeEach(() => {
  home = join(folder, `home-${(numHomes += 1)}`);
  mkdirSync(home);
});
afterEach(() => {
  for (const session of sessions.splice(0)) session.kill('SIGKILL');
});
afterAll(() => rmSync(folder, { recursive: true }));

const historyFile = (): string => join(home, '.local', 'state', 'winnow', 'history');

async function chat(argv: readonly string[] = [], { env = {}, ...options }: PtyOptions = {}): Promise<PtySession> {
  const session = new PtySession(['chat', '--temperature', '0', ...argv], { ...options, env: { HOME: home, ...env } });
  sessions.push(session);
  await session.until(/^you> $|^you>$/m);
  return session;
}

/** Windows has neither modes of files nor these signals. */
const posixTest = test.skipIf(process.platform === 'win32');

const color = { green: 2, cyan: 6 };

test('the demo model says what it is and names three others; labels have colors', async () => {
  const session = await chat(['-n', '4'], { columns: 80 });
  expect(session.shown).toContain('winnow-tiny, 2048 tokens of context');
  expect(session.shown).toContain('this is the demo model');
  expect(session.shown.match(/^winnow: {3}\d\.\d GB {2}winnow chat hf:\S+$/gm)).toHaveLength(3);
  expect(session.styleOf('you>')).toEqual({ isBold: true, color: color.cyan });
  session.write('Hello\r');
  await session.until(/winnow-tiny> .+\n+you>/);
  expect(session.styleOf('winnow-tiny> ')).toEqual({ isBold: true, color: color.green });
  session.write('\u0004');
  expect(await session.ended).toEqual({ code: 0, signal: 0 });
  expect(session.modes).toEqual({ isPasteMarked: false });
});

test('NO_COLOR: no colors; an empty WINNOW_HISTORY: lines are not kept', async () => {
  const session = await chat(['-n', '4'], { env: { NO_COLOR: '1', WINNOW_HISTORY: '' } });
  expect(session.styleOf('you>').isBold).toBe(false);
  session.write('Hello\r');
  await session.until(/winnow-tiny> .+\n+you>/);
  expect(session.raw.includes('\u001b[1m')).toBe(false);
  session.write('/exit\r');
  expect((await session.ended).code).toBe(0);
  expect(existsSync(historyFile())).toBe(false);
});

test('--no-history; a paste of several lines is one message, tabs included, and so are lines between """', async () => {
  const session = await chat(['-n', '2', '--no-history']);
  session.write('\u001b[200~one\r\ttwo\rthree\u001b[201~');
  await session.until('three');
  expect(session.shown).not.toContain('winnow-tiny> ');
  session.write('\r');
  await session.until(/winnow-tiny> .*\n+you>/);
  session.write('"""\rfour\r');
  await session.until(/four\n\.\.\.>/);
  session.write('five"""\r');
  await session.until(/five"""\n+winnow-tiny> .*\n+you>/);
  const file = join(folder, 'paste.json');
  session.write(`/save ${file}\r`);
  await session.until(`saved 4 messages to ${file}`);
  const { messages } = JSON.parse(readFileSync(file, 'utf8')) as { messages: { content: string }[] };
  expect(messages.map(({ content }) => content).filter((_, index) => index % 2 === 0)).toEqual([
    'one\n\ttwo\nthree',
    'four\nfive',
  ]);
  session.write('/exit\r');
  expect((await session.ended).code).toBe(0);
  expect(existsSync(historyFile())).toBe(false);
});

posixTest('Tab completes; lines are kept for later chats, in a file that only the user can read', async () => {
  const talk = join(home, 'talk-of-today.json');
  writeFileSync(talk, '{"messages":[{"role":"user","content":"Old"}]}');
  writeFileSync(join(home, 'talk\u001b[2Jevil.json'), '');
  const first = await chat(['-n', '2']);
  first.write('First message\r');
  await first.until(/winnow-tiny> .*\n+you>/);
  first.write('/exit\r');
  await first.ended;
  expect(readFileSync(historyFile(), 'utf8')).toBe('First message\n/exit\n');
  expect(statSync(historyFile()).mode & 0o777).toBe(0o600);
  const second = await chat(['-n', '2']);
  second.write('\u001b[A\u001b[A');
  await second.until('you> First message');
  second.write('\u0015/hi\t');
  await second.until('you> /history');
  second.write(`\u0015/load ${join(home, 'ta')}\t`);
  await second.until(`/load ${talk}`);
  second.write('\r/history\r');
  await second.until('user: Old');
});

posixTest('/model continues with another model, and keeps the current one if that cannot be loaded', async () => {
  const session = await chat(['-n', '2', '-c', '256']);
  session.write('Hello\r');
  await session.until(/winnow-tiny> .*\n+you>/);
  session.write('/model /no/such/model\r');
  await session.until(/winnow: .*\/no\/such\/model.*\n+you>/);
  session.write('/model\r');
  await session.until(/\/model\nwinnow-tiny\n+you>/);
  session.write(`/model ${fileURLToPath(new URL('.', demoModelUrl))}\r`);
  await session.until(/256 tokens of context[^]*256 tokens of context[^]*you>$/);
  session.write('/history\r');
  await session.until('user: Hello\nassistant: ');
  session.write('More\r');
  await session.until(/More\n+\S.*> .*\n+you>/);
  // a terminal that is closed
  session.kill('SIGHUP');
  expect(await session.ended).toEqual({ code: 129, signal: 0 });
  expect(session.modes).toEqual({ isPasteMarked: false });
});

test('the end of an MCP server is reported above the line that is typed', async () => {
  const server = fileURLToPath(new URL('./mcp/demo-server.ts', import.meta.url));
  const pidFile = join(home, 'pid');
  const session = await chat(['--mcp', `"${process.execPath}" "${server}" legacy`], { env: { PID_FILE: pidFile } });
  session.write('half a line');
  await session.until('you> half a line');
  process.kill(Number(readFileSync(pidFile, 'utf8')), 'SIGKILL');
  await session.until(/winnow: MCP server demo: the server has ended; its tools are gone\nyou> half a line$/);
  session.write('\u0015/exit\r');
  expect((await session.ended).code).toBe(0);
});

posixTest('SIGTERM restores the terminal', async () => {
  const session = await chat(['-n', '-1', '--ignore-eos']);
  expect(session.modes).toEqual({ isPasteMarked: true });
  session.write('Hello\r');
  await session.until(/winnow-tiny> \S/);
  session.kill('SIGTERM');
  expect(await session.ended).toEqual({ code: 143, signal: 0 });
  expect(session.modes).toEqual({ isPasteMarked: false });
  expect(session.raw).not.toContain('\u001b[?25l');
});

test('Ctrl-C stops a reply and then leaves, and restores the terminal', async () => {
  const session = await chat(['-n', '-1', '--ignore-eos']);
  session.write('Hello\r');
  await session.until(/winnow-tiny> \S/);
  session.write('\u0003');
  await session.until('winnow: stopped');
  session.write('half a line\u0003');
  await session.until(/leaves\)\n+you>/);
  session.write('\u0003');
  expect((await session.ended).code).toBe(130);
  expect(session.modes).toEqual({ isPasteMarked: false });
});
