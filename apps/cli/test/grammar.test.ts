/** --grammar and --json-schema on the demo model. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import * as engine from '@winnow/engine';
import { parseGrammarSliced } from '@winnow/grammar';
import { runCli, TestHost } from './run-cli.js';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'winnow-grammar-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const schema = JSON.stringify({
  type: 'object',
  properties: { age: { type: 'integer', minimum: 1, maximum: 99 } },
  required: ['age'],
  additionalProperties: false,
});

describe('constrained text', () => {
  test('a grammar as text and as a file', async () => {
    const grammar = 'root ::= " " ("black" | "white") "."';
    const file = join(folder, 'color.gbnf');
    await writeFile(file, `# a color\n${grammar}\n`);
    const [direct, fromFile] = [
      await runCli(engine, ['run', '-p', 'The whale is', '--temperature', '0', '--grammar', grammar]),
      await runCli(engine, ['run', '-p', 'The whale is', '--temperature', '0', '--grammar', file]),
    ];
    expect([direct.stderr, direct.code]).toEqual(['', 0]);
    expect(direct.stdout).toMatch(/^ (black|white)\.$/);
    expect(fromFile.stdout).toBe(direct.stdout);
  });

  test('a schema as text and as a file, in run and in chat', async () => {
    const file = join(folder, 'schema.json');
    await writeFile(file, schema);
    for (const source of [schema, file]) {
      const { stdout, code } = await runCli(engine, [
        'run',
        '-p',
        'x',
        '--seed',
        '1',
        '--json-schema',
        source,
        '--json',
      ]);
      expect(code).toBe(0);
      const { text, finishReason } = JSON.parse(stdout) as { text: string; finishReason: string };
      expect([Object.keys(JSON.parse(text) as object), finishReason]).toEqual([['age'], 'stop']);
    }
    const chat = await runCli(engine, ['chat', '--seed', '1', '--json-schema', schema], { stdin: 'How old?\n' });
    expect(Object.keys(JSON.parse(chat.stdout) as object)).toEqual(['age']);
  });

  test.each([
    [['--grammar', 'root ::= ('], '--grammar: grammar at byte 9'],
    [['--grammar', 'missing.gbnf'], 'missing.gbnf: no such file'],
    [['--json-schema', '{"uniqueItems": true}'], '--json-schema: JSON schema: #/uniqueItems'],
    [['--json-schema', '{'], '--json-schema: expected JSON'],
    [['--json-schema', '{}', '--grammar', 'root ::= "a"'], 'expected one of --grammar and --json-schema'],
  ])('%j is rejected before a model is loaded', async (flags, message) => {
    const { stderr, code } = await runCli(engine, ['run', 'no-such-model.gguf', '-p', 'x', ...flags]);
    expect(stderr).toContain(message);
    expect(code).not.toBe(0);
  });
});

test.skipIf(process.platform === 'win32')('a file without an end is no grammar and no schema', async () => {
  for (const flag of ['--grammar', '--json-schema']) {
    const { stderr, code } = await runCli(engine, ['run', 'no-such-model.gguf', '-p', 'x', flag, '/dev/zero']);
    expect([code, stderr]).toEqual([1, 'winnow: /dev/zero: more than 16 MiB\n']);
  }
});

test('Ctrl-C while a grammar is compiled ends it before its next slice', async () => {
  const rules = Array.from({ length: 3500 }, (_, index) => `rule${index} ::= "a" | "b" [0-9]* rule${index + 1}`);
  const grammar = ['root ::= rule0', ...rules, 'rule3500 ::= ""'].join('\n');
  const numSlices = [...parseGrammarSliced(grammar)].length;
  const host = new TestHost(engine);
  let isRunning = true;
  const running = host.run(['run', 'no-such-model.gguf', '-p', 'x', '--grammar', grammar]);
  void running.finally(() => (isRunning = false));
  let numTurns = 0;
  for (; isRunning; numTurns++) {
    if (numTurns === 2) host.interrupt();
    await new Promise((resolve) => setImmediate(resolve));
  }
  expect(await running).toMatchObject({ code: 130, stderr: 'winnow: interrupted\n' });
  expect(numTurns).toBeLessThan(numSlices);
});

test('text cut off before it matches fails; text that may end there succeeds', async () => {
  const cut = await runCli(engine, ['run', '-p', 'x', '-n', '2', '--seed', '1', '--json-schema', schema]);
  expect(cut).toMatchObject({ code: 4, stderr: expect.stringMatching(/cut by the token limit .*--max-tokens/) });
  expect(cut.stdout).toMatch(/^\{/);
  const json = await runCli(engine, ['run', '-p', 'x', '-n', '2', '--seed', '1', '--json-schema', schema, '--json']);
  expect([json.code, JSON.parse(json.stdout)]).toMatchObject([
    4,
    { finishReason: 'length', satisfiesConstraint: false },
  ]);
  const chat = await runCli(engine, ['chat', '-n', '2', '--seed', '1', '--json-schema', schema], { stdin: 'Age?\n' });
  expect([chat.code, chat.stderr]).toEqual([4, expect.stringContaining('cut by the token limit')]);
  const open = await runCli(engine, ['run', '-p', 'x', '-n', '2', '--seed', '1', '--grammar', 'root ::= [a-z ]*']);
  expect([open.stderr, open.code]).toEqual(['', 0]);
});
