import { describe, expect, test } from 'vitest';
import { createFakeEngine } from './fake-engine.js';
import { runCli } from './run-cli.js';

const { api, loads } = createFakeEngine();

describe('winnow tokenize', () => {
  test('one id per line with its text', async () => {
    const { stdout } = await runCli(api, ['tokenize', 'm.gguf', 'a"\n']);
    expect(stdout).toBe('1\t"\\u0001"\n97\t"a"\n34\t"\\""\n10\t"\\n"\n');
  });

  test('partial characters are shown by their spelling', async () => {
    expect((await runCli(api, ['tokenize', 'ü', '--no-bos'])).stdout).toBe('195\t"<195>"\n188\t"<188>"\n');
  });

  test('--ids and --json', async () => {
    expect((await runCli(api, ['tokenize', 'ab', '--ids', '--no-bos'])).stdout).toBe('97,98\n');
    const { stdout } = await runCli(api, ['tokenize', '-p', 'ab', '--json']);
    expect(JSON.parse(stdout)).toEqual({ ids: [1, 97, 98], pieces: ['<1>', '<97>', '<98>'], count: 3 });
  });

  test('which argument is the model', async () => {
    const models = async (argv: readonly string[], stdin?: string): Promise<unknown> => {
      loads.length = 0;
      const { code, stdout } = await runCli(api, ['tokenize', ...argv, '--ids', '--no-bos'], { stdin });
      expect([code, stdout]).toEqual([0, '97\n']);
      const { location } = loads[0] ?? {};
      return location instanceof URL ? 'demo' : location;
    };
    expect(await models(['a'])).toBe('demo');
    expect(await models(['-p', 'a'])).toBe('demo');
    expect(await models([], 'a\n')).toBe('demo');
    expect(await models(['m.gguf', 'a'])).toBe('m.gguf');
    expect(await models(['m.gguf', '-p', 'a'])).toBe('m.gguf');
    expect(await models(['m.gguf', '-f', '-'], 'a')).toBe('m.gguf');
    expect(await models(['-m', 'm.gguf', 'a'])).toBe('m.gguf');
    expect(await models(['-m', 'm.gguf'], 'a')).toBe('m.gguf');
  });
});

describe('winnow detokenize', () => {
  test.each([
    [['97', '98']],
    [['97,98']],
    [['[97, 98]']],
    [['m.gguf', '97,98']],
    [['-m', 'm.gguf', '97', '98']],
    [['1', '97', '98', '--no-special']],
  ])('%j', async (argv) => {
    expect(await runCli(api, ['detokenize', ...argv])).toEqual({ code: 0, stdout: 'ab', stderr: '' });
  });

  test('reads the output of tokenize', async () => {
    const { stdout } = await runCli(api, ['tokenize', 'tab\t12 "ü"\n', '--no-bos']);
    const back = await runCli(api, ['detokenize', 'm.gguf', '--json'], { stdin: stdout });
    expect(JSON.parse(back.stdout)).toEqual({ text: 'tab\t12 "ü"\n', count: 12 });
  });
});

describe('winnow logits', () => {
  test('a table per position', async () => {
    const { stdout } = await runCli(api, ['logits', '--tokens', '97,98', '--positions', '0,last', '--top', '2']);
    expect(stdout).toBe(
      [
        'after position 0: 97 "a"',
        'id  logprob  share    text',
        '0   0.0000   100.00%  "\\u0000"',
        '1   -1.0000  36.79%   "\\u0001"',
        '',
        'after position 1: 98 "b"',
        'id  logprob  share   text',
        '0   -1.0000  36.79%  "\\u0000"',
        '1   -2.0000  13.53%  "\\u0001"',
        '',
      ].join('\n'),
    );
  });

  test('--json has the whole vocabulary as little-endian floats', async () => {
    const { stdout } = await runCli(api, ['logits', 'm.gguf', '--tokens', '5,6,7', '--positions', '0,2', '--json']);
    const { logprobs, ...head } = JSON.parse(stdout) as { logprobs: string[] };
    expect(head).toEqual({
      model: 'fake',
      backend: 'fake-backend',
      vocab: 256,
      tokens: [5, 6, 7],
      positions: [0, 2],
    });
    const bytes = Buffer.from(logprobs[1] ?? '', 'base64');
    expect(bytes.length).toBe(256 * 4);
    expect(bytes.readFloatLE(4 * 10)).toBe(-12);
  });
});

describe('winnow inspect', () => {
  test('readable sections', async () => {
    const { stdout } = await runCli(api, ['inspect', 'm.gguf', '-c', '32']);
    expect(stdout).toContain('total            1.23 kB');
    expect(stdout).toContain('  a.weight  q8_0  [32, 2]  68 B');
    expect(stdout).toContain('  parameters  64\n  weights     68 B, q8_0\n  tensors     1\n');
    expect(stdout).toContain('  architecture  fake\n');
    expect(loads.at(-1)).toMatchObject({ options: { context: 32 } });
  });

  test('lines fit the terminal', async () => {
    const { stdout } = await runCli(api, ['inspect', 'm.gguf'], { isStdoutTerminal: true, columns: 24 });
    expect(Math.max(...stdout.split('\n').map(({ length }) => length))).toBe(24);
    expect(stdout).toContain('…\n');
  });

  test('--memory: the plan is printed, and the exit code says whether it fits', async () => {
    expect((await runCli(api, ['inspect', 'm.gguf', '--memory', '1230'])).code).toBe(0);
    const { code, stdout, stderr } = await runCli(api, ['inspect', 'm.gguf', '--memory', '1kB']);
    expect([code, stderr]).toEqual([4, 'winnow: memory plan: needed 1230 bytes, available 1000 bytes\n']);
    expect(stdout).toContain('total            1.23 kB');
  });

  test('--json, with 64-bit integers', async () => {
    const { stdout } = await runCli(api, ['inspect', 'm.gguf', '--json']);
    expect(JSON.parse(stdout)).toMatchObject({
      name: 'fake',
      format: 'gguf',
      metadata: { big: '1152921504606846976', small: 7 },
      tensors: [{ name: 'a.weight' }],
      plan: { totalBytes: 1230 },
    });
  });
});
