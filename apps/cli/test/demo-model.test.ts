/** The commands on the demo model with the real engine, in this process. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { demoModelUrl } from '@winnow/demo-model';
import * as engine from '@winnow/engine';
import { beforeAll, describe, expect, test } from 'vitest';
import { runCli } from './run-cli.js';

interface Golden {
  readonly text: string;
  readonly ids: number[];
  readonly top5: { readonly id: number; readonly logit: number }[];
  readonly greedy: number[];
  readonly greedy_text: string;
}

const goldensUrl = new URL('../__fixtures__/goldens.json', demoModelUrl);
const { prompts } = JSON.parse(readFileSync(goldensUrl, 'utf8')) as { prompts: Golden[] };
const [sea, doctor, codes] = prompts as [Golden, Golden, Golden];

const run = (argv: readonly string[], stdin?: string) => runCli(engine, argv, { stdin });
const json = async (argv: readonly string[], stdin?: string): Promise<Record<string, unknown>> => {
  const { code, stdout, stderr } = await run([...argv, '--json'], stdin);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  return JSON.parse(stdout) as Record<string, unknown>;
};
const greedy = ['-n', '64', '--temperature', '0', '--ignore-eos'];

test.each([sea, doctor])('winnow run: greedy text of $text', async (golden) => {
  expect(await run(['run', '-p', golden.text, ...greedy])).toEqual({
    code: 0,
    stdout: golden.greedy_text,
    stderr: '',
  });
});

test('winnow run: --json has the golden tokens', async () => {
  const result = await json(['run', '-f', '-', ...greedy], `${codes.text}\n`);
  expect(result).toMatchObject({
    model: 'winnow-tiny',
    tokens: codes.greedy,
    promptTokens: codes.ids.length,
    cachedTokens: 0,
    droppedTokens: 0,
    finishReason: 'length',
    backend: 'wasm',
    fallbacks: [],
    contextSize: 2048,
  });
  expect(result['timings']).toMatchObject({ tokensPerSecond: expect.any(Number) });
});

test('winnow run: --chat finds the number and ends with the turn', async () => {
  const question = 'The code of Alice is 31407. The code of Peter is 86952.\n\nWhat is the code of Peter?';
  const result = await json(['run', '--chat', '-p', question, '--temperature', '0']);
  expect(result['text']).toContain('86952');
  expect(result['finishReason']).toBe('eos');
});

test('winnow run: equal seeds draw equal texts, another seed draws another', async () => {
  const draw = async (seed: string): Promise<unknown> =>
    (await json(['run', '-p', 'Once upon a time', '-n', '24', '-s', seed]))['text'];
  expect(await draw('7')).toBe(await draw('7'));
  expect(await draw('7')).not.toBe(await draw('8'));
});

test('winnow run: a stop sequence ends the text and is not printed', async () => {
  const result = await json(['run', '-p', sea.text, '--temperature', '0', '-e', '--stop', String.raw`.\n`]);
  expect(result).toMatchObject({ text: ' the other', finishReason: 'stop' });
});

test('winnow run: a long prompt is rejected with exit code 4, or truncated with a notice', async () => {
  const refused = await run(['run', '-p', sea.text, '-c', '6']);
  expect(refused).toMatchObject({ code: 4, stdout: '' });
  expect(refused.stderr).toMatch(
    /^winnow: --context: needed 9 tokens, available 6 tokens [^\n]+a larger context[^\n]+\n$/,
  );
  const shortened = await json(['run', '-p', sea.text, '-c', '6', '--overflow', 'truncate-start', '-q']);
  expect(shortened).toMatchObject({ promptTokens: 5, droppedTokens: 3, finishReason: 'context' });
  expect((await run(['run', '-p', 'Hi', '--memory', '1MB'])).code).toBe(4);
});

test('winnow run: an f16 KV cache and small batches give the same first greedy tokens', async () => {
  const result = await json(['run', '-p', sea.text, '-n', '8', '--temperature', '0', '--kv-dtype', 'f16', '-b', '3']);
  expect(result['tokens']).toEqual(sea.greedy.slice(0, 8));
  expect(await run(['run', '-p', 'Hi', '--kv-dtype', 'q2_K'])).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(/^winnow: --kv-dtype: expected f32/),
  });
});

test('winnow run: paths that are not models', async () => {
  expect(await run(['run', '/no/such/model.gguf', '-p', 'Hi'])).toMatchObject({
    code: 1,
    stderr: 'winnow: /no/such/model.gguf: no such file or folder\n',
  });
  const manifest = fileURLToPath(new URL('../package.json', import.meta.url));
  expect(await run(['run', manifest, '-p', 'Hi'])).toMatchObject({
    code: 3,
    stderr: expect.stringMatching(/at byte 0: magic: expected GGUF/),
  });
});

describe('winnow tokenize, detokenize', () => {
  test.each(prompts.map(({ text, ids }) => [text.slice(0, 40), text, ids] as const))(
    '%j...',
    async (_head, text, ids) => {
      expect((await json(['tokenize', '-p', text]))['ids']).toEqual(ids);
      expect((await run(['detokenize', ...ids.map(String)])).stdout).toBe(text);
    },
  );

  test('special tokens are ids or text, as requested', async () => {
    const line = (await run(['tokenize', '<|im_end|>', '--ids'])).stdout;
    expect(line).toBe('2047\n');
    const plain = (await json(['tokenize', '<|im_end|>', '--no-special']))['ids'] as number[];
    expect(plain.length).toBeGreaterThan(3);
    expect((await run(['detokenize', '--no-special', '2047', '603'])).stdout).toBe('The');
  });
});

describe('winnow logits', () => {
  let row: Float32Array;
  beforeAll(async () => {
    const result = await json(['logits', '--tokens', sea.ids.join(','), '--positions', '0,last']);
    expect(result).toMatchObject({ positions: [0, sea.ids.length - 1], vocab: 2048 });
    const bytes = Buffer.from((result['logprobs'] as string[])[1] ?? '', 'base64');
    row = Float32Array.from({ length: bytes.length / 4 }, (_, index) => bytes.readFloatLE(4 * index));
  });

  test('are log-probabilities of the whole vocabulary', () => {
    expect(row).toHaveLength(2048);
    const sum = row.reduce((total, value) => total + Math.exp(value), 0);
    // the log-sum-exp below 16 and the differences below 32 are f32: half an ulp each, 2^-21 and 2^-20, of the sum
    expect(Math.abs(sum - 1)).toBeLessThan(2 ** -19);
  });

  test('differ from the goldens by one constant', () => {
    const shifts = sea.top5.map(({ id, logit }) => logit - (row[id] as number));
    // both values of a difference have the tolerance of the goldens, 5e-4
    for (const shift of shifts) expect(Math.abs(shift - (shifts[0] as number))).toBeLessThan(1e-3);
  });

  test('the table begins with the golden tokens', async () => {
    const { stdout } = await run(['logits', '--tokens', sea.ids.join(' '), '--top', '5']);
    const ids = [...stdout.matchAll(/^(\d+) +-/gm)].map(([, id]) => Number(id));
    expect(ids).toEqual(sea.top5.map(({ id }) => id));
  });

  test('ids outside the vocabulary are rejected', async () => {
    expect(await run(['logits', '--tokens', '2048'])).toMatchObject({ code: 2, stdout: '' });
  });
});

describe('winnow inspect', () => {
  test('tensors, plan and metadata', async () => {
    const info = await json(['inspect', '-c', '1024']);
    // f32 keys and values of 6 layers with 2 heads of 32, and the position of the slot
    const numKvBytes = 2 * 6 * 2 * 32 * 4 + 4;
    expect(info).toMatchObject({ name: 'winnow-tiny', format: 'safetensors', metadata: { model_type: 'llama' } });
    expect(info['plan']).toMatchObject({ contextSize: 1024, kvBytesPerToken: numKvBytes });
    expect(info['tensors']).toHaveLength(56);
  });
});

describe('winnow chat', () => {
  test('a question about the text before, its history, and another question', async () => {
    const lines = [
      'The code of Alice is 31407. The code of Peter is 86952.\\',
      '\\',
      'What is the code of Peter?',
      '/history',
      '/stats',
    ];
    const { code, stdout, stderr } = await run(['chat', '--temperature', '0'], `${lines.join('\n')}\n`);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toMatch(/^[^\n]*86952/);
    expect(stdout).toContain('\nuser: The code of Alice is 31407.');
    expect(stdout).toMatch(/context {6}\d+ of 2048 tokens/);
  });
});
