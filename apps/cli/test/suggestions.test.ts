/** Errors that say what to type instead, in a second line. */
import { demoModelUrl } from '@winnow/demo-model';
import * as engine from '@winnow/engine';
import { ArgumentError } from '@winnow/tensor';
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createFakeEngine } from './fake-engine.js';
import { runCli, type CliRun, type CliSetup } from './run-cli.js';

const demo = fileURLToPath(new URL('.', demoModelUrl)).replace(/\/$/, '');
let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'winnow-cli-'));
  mkdirSync(join(folder, 'sub'));
  writeFileSync(join(folder, 'sub', 'a.gguf'), 'GGUF');
});
afterAll(() => rmSync(folder, { recursive: true }));

const run = (argv: readonly string[], setup: CliSetup = {}): Promise<CliRun> => runCli(engine, argv, setup);

const expectedFolder = 'expected the folder of the model, or a file whose header describes it';

describe('models', () => {
  test('a weight file: its folder', async () => {
    const file = join(demo, 'model.safetensors');
    expect(await run(['run', file, '-p', 'a b'])).toEqual({
      code: 2,
      stdout: '',
      stderr:
        `winnow: MODEL: expected the folder of the model, got one of its weight files, ${file}\n` +
        `  try: winnow run ${demo} -p 'a b'\n`,
    });
  });

  test('a file that is a whole model', async () => {
    const file = join(folder, 'whole.safetensors');
    copyFileSync(demoModelUrl, file);
    expect(await run(['tokenize', 'Hi', '--model', file])).toMatchObject({ code: 0, stderr: '' });
    writeFileSync(file, '\u0002\0\0\0\0\0\0\0{}');
    const { code, stderr } = await run(['run', file, '-p', 'a b']);
    expect({ code, stderr }).toEqual({
      code: 3,
      stderr: `winnow: ${file}: config.json: missing in the header: ${expectedFolder}\n`,
    });
  });

  test('a folder without config.json, which is not searched', async () => {
    const { code, stderr } = await run(['inspect', folder]);
    expect({ code, stderr }).toEqual({
      code: 2,
      stderr: `winnow: MODEL: expected a folder with config.json or a .gguf file, got ${folder}\n`,
    });
  });

  test('a folder of GGUF files: the first of them', async () => {
    const path = join(folder, 'sub');
    const { stderr } = await run(['run', path, '-p', 'x']);
    expect(stderr).toMatch(/config\.json or a \.gguf file, got .+\n {2}try: winnow run .+a\.gguf -p x\n$/);
  });

  test('a text in place of the model: the prompt', async () => {
    const { code, stderr } = await run(['run', 'Once upon a time'], {});
    expect([code, stderr.split('\n')[1]]).toEqual([2, "  try: winnow run -p 'Once upon a time'"]);
    const piped = await run(['run', "it's", '-n', '5'], { stdin: '' });
    expect(piped.stderr).toContain(`\n  try: winnow run -p 'it'\\''s' -n 5\n`);
    expect((await run(['run', demo])).stderr).not.toContain('try:');
  });

  test('an encoder: the commands that embed', async () => {
    const expected = 'a generative architecture';
    const loadError = new ArgumentError({ argument: 'model', expected, actual: 'bert, an encoder, which only embeds' });
    const { api } = createFakeEngine({ loadError });
    const keys = ['--api-key', 'secret', '--api-key=secret']; // the line may end up in a log
    const served = await runCli(api, ['serve', 'bge', '--port', '0', ...keys]);
    expect(served.stderr).toBe(
      'winnow: MODEL: expected a generative architecture, got bert, an encoder, which only embeds\n' +
        '  try: winnow serve --embedding-model bge --port 0 --api-key KEY --api-key=KEY\n',
    );
    expect((await runCli(api, ['run', 'bge', '-p', 'x'])).stderr).toContain('\n  try: winnow embed bge -p TEXT\n');
  });
});

test('a session of another model or of other flags', async () => {
  const other = join(folder, 'other.session');
  const saved = ['-p', 'The old man', '-n', '1', '--quiet'];
  expect(await run(['run', ...saved, '--save-session', other])).toMatchObject({ code: 0 });
  const { code, stderr } = await run(['run', ...saved, '--kv-dtype', 'f16', '--load-session', other]);
  expect(code).toBe(3);
  expect(stderr).toContain(`${other}: session: expected a session that was saved with the same cache flags; `);
  const merged = await run(['run', ...saved, '--quantize', 'q8_0', '--load-session', other]);
  expect(merged.stderr).toContain('expected a session of this model, got one of another model');
});

describe('prompts and files', () => {
  test('an empty input is no prompt', async () => {
    for (const setup of [{ stdin: '' }, { stdin: '\n' }]) {
      expect(await run(['run', '-n', '1'], setup)).toMatchObject({
        code: 2,
        stderr: 'winnow: --prompt: expected a prompt, got an empty stdin\n',
      });
    }
  });

  test('pictures are SVG files', async () => {
    expect(await run(['explain-attention', '-p', 'x', '--out', 'x.png'])).toMatchObject({
      code: 2,
      stderr: "winnow: --out: expected a file that ends in .svg, got 'x.png'\n",
    });
  });
});

test('help on a command that does not exist', async () => {
  expect(await run(['help', 'nothing'])).toEqual({
    code: 2,
    stdout: '',
    stderr: "winnow: unknown command 'nothing'\n  try: winnow --help\n",
  });
  expect((await run(['help', 'rnu'])).stderr).toContain('Did you mean run?');
});

test('embedding with a decoder: the flag and its values', async () => {
  const { code, stderr } = await run(['embed', '-p', 'x']);
  expect(code).toBe(2);
  expect(stderr).toMatch(
    /^winnow: --pooling: expected mean \| cls \| last .*\n {2}try: winnow embed -p x --pooling last\n$/,
  );
  const lines = join(folder, 'in.jsonl');
  const line = { custom_id: '1', method: 'POST', url: '/v1/embeddings', body: { input: 'x' } };
  writeFileSync(lines, `${JSON.stringify(line)}\n`);
  expect((await run(['batch', lines])).stderr).toContain(`try: winnow batch ${lines} --pooling last\n`);
});
