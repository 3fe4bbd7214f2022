import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { createFakeEngine } from './fake-engine.js';
import { runCli } from './run-cli.js';

const fake = createFakeEngine();
const commands = ['run', 'chat', 'serve', 'route', 'tokenize', 'detokenize', 'logits', 'inspect'];

describe('help and version', () => {
  test('--version', async () => {
    expect(await runCli(fake.api, ['--version'])).toEqual({ code: 0, stdout: '1.2.3\n', stderr: '' });
  });

  test('--help names every command and the exit codes', async () => {
    const { code, stdout, stderr } = await runCli(fake.api, ['--help']);
    expect([code, stderr]).toEqual([0, '']);
    for (const command of commands) expect(stdout).toContain(`\n  ${command} `);
    expect(stdout).toContain('Exit codes: 0');
  });

  test.each(commands)('%s --help has examples and loads nothing', async (command) => {
    for (const argv of [
      [command, '--help'],
      ['help', command],
    ]) {
      const { code, stdout } = await runCli(fake.api, argv);
      expect(code).toBe(0);
      expect(stdout).toContain('Examples:\n  $ ');
      expect(stdout).toContain(`Usage: winnow ${command} `);
    }
    expect(fake.loads).toEqual([]);
  });

  const flagsOf = (help: string): string[] =>
    [...help.matchAll(/^  (?:-\w, )?(--[a-z-]+)/gm)].map(([, name = '']) => name);

  test('run --help shows twenty flags, --help-all every flag in the same groups', async () => {
    const short = await runCli(fake.api, ['run', '--help']);
    const everyday = flagsOf(short.stdout).filter((name) => !name.startsWith('--help'));
    expect(everyday).toHaveLength(20);
    const all = await runCli(fake.api, ['run', '--help-all']);
    expect([all.code, all.stderr]).toEqual([0, '']);
    const every = flagsOf(all.stdout).filter((name) => !name.startsWith('--help'));
    expect(every).toEqual(
      expect.arrayContaining([...everyday, '--kv-offload-folder', '--repetition-penalty', '--tokens']),
    );
    expect(short.stdout).toContain(`${every.length - everyday.length} more flags: winnow run --help-all`);
    expect(all.stdout).not.toContain('more flags:');
    expect(fake.loads).toEqual([]);
  });

  test('a subcommand names itself in full, and --help-all works without hidden flags', async () => {
    expect((await runCli(fake.api, ['eval', 'h2o', '--help'])).stdout).toContain(
      'more flags: winnow eval h2o --help-all',
    );
    const { code, stdout } = await runCli(fake.api, ['convert', '--help-all']);
    expect([code, stdout]).toEqual([0, (await runCli(fake.api, ['convert', '--help'])).stdout]);
  });

  test('without a command the help goes to stderr', async () => {
    const { code, stdout, stderr } = await runCli(fake.api, []);
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toContain('Usage: winnow');
  });
});

test('help: every sampling flag says its default, which the guide says, too', async () => {
  const guide = readFileSync(new URL('../../../docs/guides/cli.md', import.meta.url), 'utf8');
  const { stdout } = await runCli(fake.api, ['run', '--help-all']);
  const section = /Sampling:\n(.*?)\n\n/s.exec(stdout)?.[1] ?? '';
  const defaults = [...section.replaceAll(/\s+/g, ' ').matchAll(/(--[a-z-]+) <.*?\(default: ([^)]+)\)/g)];
  expect(defaults.length).toBe(9);
  for (const [, name = '', value = ''] of defaults) {
    if (name === '--seed') continue;
    expect(guide).toMatch(new RegExp(`\\| \`${name} [A-Z]\` +\\| ${value} `));
  }
});

describe('invalid command lines exit with 2 and one line', () => {
  test.each([
    ['rum', "unknown command 'rum'"],
    ['run --temperatur 1 -p x', "unknown option '--temperatur'"],
    ['run --kv-rotatoin none -p x', 'Did you mean --kv-rotation?'],
    ['run a b -p x', 'too many arguments'],
    ['run -p', 'argument missing'],
    ['run -p x -f y', '--prompt: expected one source of text'],
    ['run a -m b -p x', '--model: expected one model'],
    ['run -p x -n abc', "--max-tokens: expected an integer of at least 0, or -1, got 'abc'"],
    ['run -p x -n 1.5', "--max-tokens: expected an integer of at least 0, or -1, got '1.5'"],
    ['run -p x --temperature nan', "--temperature: expected a number from 0, got 'nan'"],
    ['run -p x --temperature -1', "--temperature: expected a number from 0, got '-1'"],
    ['run -p x --top-p 0', "--top-p: expected a number above 0, at most 1, got '0'"],
    ['run -p x --min-p 2', "--min-p: expected a number from 0 to 1, got '2'"],
    ['run -p x -c -5', "--context: expected an integer of at least 0, got '-5'"],
    ['run -p x --native sse9', "--native: expected auto, on, off, amx, avx512, avxvnni, avx2, i8mm, neon, got 'sse9'"],
    ['run -p x --activations int4', "--activations: expected int8, f32, got 'int4'"],
    ['run -p x -t 0', "--threads: expected an integer of at least 1, got '0'"],
    ['run -p x --memory lots', '--memory: expected a size'],
    ['run -p x --kv-dtype f8', '--kv-dtype: expected a data type'],
    ['run -p x --attention sparse', '--attention'],
    ['run -p x --decode h2o', '--decode'],
    ['run -p x --prefill sparq', '--prefill'],
    ['run -p x --attention subquadratic:windo=3', '--attention'],
    ['run -p x --kv-dtype f16,f8', '--kv-dtype: expected a data type'],
    ['run -p x --kv-dtype f16,f16,f16', '--kv-dtype: expected a data type'],
    ['run -p x --kv-dtype ,', '--kv-dtype: expected a data type'],
    [
      'run -p x --overflow drop',
      "--overflow: expected stop, error, slide, evict, truncate-start, truncate-middle, got 'drop'",
    ],
    ['logits', "required option '--tokens <ids>' not specified"],
    ['logits --tokens 1,x', "--tokens: expected token ids such as 1,2,3, got 'x'"],
    ['logits --tokens ,', '--tokens: expected token ids'],
    ['logits --tokens 1,2 --positions 2', "--positions: expected positions from 0 to 1, 'last' or 'all', got '2'"],
    ['detokenize m.gguf 1 x', "IDS: expected token ids such as 1,2,3, got 'x'"],
    ['detokenize', 'IDS: expected token ids as arguments or from a pipe'],
    ['tokenize', 'tokenize: expected a text'],
    ['tokenize m.gguf text -p text', 'tokenize: expected MODEL and TEXT once each'],
  ])('winnow %s', async (line, message) => {
    const { code, stdout, stderr } = await runCli(fake.api, line.split(' '));
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toMatch(/^winnow: [^\n]+\n(  try: [^\n]+\n)?$/);
    expect(stderr).toContain(message);
  });

  test('an empty stop sequence is rejected', async () => {
    const { code, stderr } = await runCli(fake.api, ['run', '-p', 'x', '--stop', '']);
    expect([code, stderr]).toEqual([2, "winnow: --stop: expected a text, got ''\n"]);
  });
});
