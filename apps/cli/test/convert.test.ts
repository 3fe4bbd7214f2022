import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as engine from '@winnow/engine';
import { demoModelUrl } from '@winnow/demo-model';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { runCli } from './run-cli.js';

let folder: string;
beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'winnow-convert-'))));
afterEach(() => rmSync(folder, { recursive: true }));
const demo = fileURLToPath(new URL('.', demoModelUrl));

test('a folder to GGUF, which runs, and back', async () => {
  const path = join(folder, 'tiny.gguf');
  const made = await runCli(engine, ['convert', demo, path, '--type', 'Q8_0']);
  expect(made).toMatchObject({ code: 0, stdout: 'tiny.gguf\n' });
  const run = await runCli(engine, [
    'run',
    path,
    '-p',
    'Once upon a time',
    '-n',
    '4',
    '--temperature',
    '0',
    '--json',
    '-q',
  ]);
  expect(run.code).toBe(0);
  expect(await runCli(engine, ['convert', path, join(folder, 'back'), '--type', 'f16', '-q'])).toMatchObject({
    code: 0,
  });
  expect(readdirSync(join(folder, 'back'))).toContain('tokenizer.json');
});

test('errors name the flag and leave no files', async () => {
  const path = join(folder, 'tiny.gguf');
  expect(await runCli(engine, ['convert', demo, path, '--type', 'q9'])).toMatchObject({ code: 2 });
  expect(await runCli(engine, ['convert', demo, path, '--split-size', 'huge'])).toMatchObject({ code: 2 });
  expect(await runCli(engine, ['convert', join(folder, 'none.gguf'), path])).toMatchObject({ code: 1 });
  expect(existsSync(path)).toBe(false);
  await runCli(engine, ['convert', demo, path, '-q']);
  expect(await runCli(engine, ['convert', demo, path])).toMatchObject({
    code: 2,
    stderr: `winnow: DESTINATION: expected a new file or folder, or --force, got ${path}\n`,
  });
  expect((await runCli(engine, ['convert', path, folder, '--type', 'q8_0'])).stderr).toMatch(
    /^winnow: --type: expected f32 .* got q8_0\n$/,
  );
  expect(await runCli(engine, ['convert', demo, path, '--force', '-q'])).toMatchObject({ code: 0, stderr: '' });
});
