import { chmodSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { HistoryFile, historyPath } from './history-file.js';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'winnow-history-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

const unforeseen = (text: string): void => {
  throw new Error(text);
};

test.each([
  [{ HOME: '/h' }, 'linux', '/h/.local/state/winnow/history'],
  [{ HOME: '/h', XDG_STATE_HOME: '' }, 'linux', '/h/.local/state/winnow/history'],
  [{ HOME: '/h', XDG_STATE_HOME: '/s' }, 'linux', '/s/winnow/history'],
  [{ HOME: '/h', WINNOW_HISTORY: '/w' }, 'linux', '/w'],
  [{ HOME: '/h', WINNOW_HISTORY: '' }, 'linux', undefined],
  [{ HOME: '/h', LOCALAPPDATA: '/a' }, 'win32', '/a/winnow/history'],
  [{}, 'linux', undefined],
])('%j on %s is %s', (env, platform, path) => expect(historyPath(env, platform)?.replaceAll('\\', '/')).toBe(path));

test('the last 1000 lines are kept, newest first', () => {
  const path = join(folder, 'long');
  writeFileSync(path, Array.from({ length: 1500 }, (_, index) => `line ${index}\n`).join(''));
  const history = new HistoryFile(path, unforeseen);
  expect([history.lines.length, history.lines[0], history.lines.at(-1)]).toEqual([1000, 'line 1499', 'line 500']);
  history.add('new');
  const lines = readFileSync(path, 'utf8').split('\n');
  expect([lines.length, lines[0], lines.at(-2)]).toEqual([1002, 'line 500', 'new']);
});

test.skipIf(process.platform === 'win32')('a file that others could read is closed to them', () => {
  const path = join(folder, 'open');
  writeFileSync(path, 'secret\n');
  chmodSync(path, 0o644);
  expect(new HistoryFile(path, unforeseen).lines).toEqual(['secret']);
  expect(statSync(path).mode & 0o777).toBe(0o600);
});

test('a file that cannot be written is a warning', () => {
  const warnings: string[] = [];
  const history = new HistoryFile(join(folder, 'open', 'no-folder'), (text) => warnings.push(text));
  history.add('line');
  expect(history.lines).toEqual([]);
  expect(warnings).toEqual([expect.stringMatching(/^lines are not kept for later chats: E/)]);
});
