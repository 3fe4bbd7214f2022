/** Files whose names and contents hold control characters: a terminal never gets one. */
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as engine from '@winnow/engine';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { printable } from '../src/errors/printable.js';
import { createFakeEngine } from './fake-engine.js';
import { runCli } from './run-cli.js';

const demo = fileURLToPath(new URL('../../../packages/demo-model/src/model', import.meta.url));
/** Sets the title of the window, and clears the screen in the one-byte form. */
const evil = '\u001B]0;owned\u0007\u009B2J';
// oxlint-disable-next-line no-control-regex
const controls = /[\u0000-\u0008\u000B-\u001F\u007F-\u009F]/;

let folder: string;
beforeEach(() => {
  folder = join(mkdtempSync(join(tmpdir(), 'winnow-controls-')), 'model');
  mkdirSync(folder);
  for (const name of readdirSync(demo)) copyFileSync(join(demo, name), join(folder, name));
});
afterEach(() => rmSync(join(folder, '..'), { recursive: true }));

function editConfig(values: object): void {
  const path = join(folder, 'config.json');
  writeFileSync(path, JSON.stringify({ ...(JSON.parse(readFileSync(path, 'utf8')) as object), ...values }));
}

test('control characters become visible, and lines stay lines', () => {
  expect(printable('a\tb\r\nc\n\u00E9\u{1F600}')).toBe('a\tb\r\nc\n\u00E9\u{1F600}');
  expect(printable(`50%\r${evil}\u007F\0`)).toBe(String.raw`50%\u000d\u001b]0;owned\u0007\u009b2J\u007f\u0000`);
});

test.each([true, false])('metadata in tables (stdout is a terminal: %s)', async (isStdoutTerminal) => {
  editConfig({ [`key${evil}`]: `value${evil}`, architectures: [`list${evil}`] });
  const { code, stdout } = await runCli(engine, ['inspect', folder], { isStdoutTerminal, columns: 300 });
  expect(code).toBe(0);
  expect(stdout).toContain(String.raw`key\u001b]0;owned\u0007\u009b2J`);
  expect(stdout).not.toMatch(controls);
});

test('errors that quote a file, and their stacks', async () => {
  editConfig({ model_type: `kind${evil}` });
  const { code, stderr } = await runCli(engine, ['inspect', folder], { env: { WINNOW_DEBUG: '1' } });
  expect(code).not.toBe(0);
  expect(stderr).toContain('owned');
  expect(stderr).not.toMatch(controls);
});

test('texts of a model on a terminal, but not in a file', async () => {
  const { api } = createFakeEngine();
  const ids = [...new TextEncoder().encode('a\u001B[2Jb')].map(String);
  const onTerminal = await runCli(api, ['detokenize', ...ids], { isStdoutTerminal: true });
  expect(onTerminal.stdout).toBe(`${String.raw`a\u001b[2Jb`}\n`);
  expect((await runCli(api, ['detokenize', ...ids])).stdout).toBe('a\u001B[2Jb');
});
