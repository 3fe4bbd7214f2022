/** Attention policies of the command line on the demo model: notices and errors. */
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as engine from '@winnow/engine';
import { describe, expect, test } from 'vitest';
import { runCli } from './run-cli.js';

const run = (...flags: string[]) =>
  runCli(engine, ['run', '-p', 'The old man', '-n', '4', '--temperature', '0', ...flags]);

describe('policies', () => {
  test.each([
    ['--attention', 'streaming:window=8,sinks=2'],
    ['--prefill', 'subquadratic:window=8,block=8'],
    ['--decode', 'page-topk:page=8,epsilon=0.1'],
    ['--attention', 'prefill=h2o;decode=sparq;dense-first=1;layers=3:dense'],
  ])('%s %s', async (flag, policy) => {
    const { code, stdout } = await run(flag, policy);
    expect(code).toBe(0);
    expect(stdout).toMatch(/[a-z]/);
  });

  test('h2o as specified, with a notice when budgets are clamped', async () => {
    const fits = await run('--prefill', 'h2o:chunk=1024,local=256,heavy=256,sinks=0', '--batch', '4096');
    expect(fits.code).toBe(0);
    expect(fits.stderr).not.toContain('instead of');
    const clamped = await run('--prefill', 'h2o:chunk=64,local=48,heavy=48');
    expect(clamped.code).toBe(0);
    expect(clamped.stderr).toMatch(/using sinks=0, local=48, heavy=\d+ instead of sinks=0, local=48, heavy=48/);
  });
});

test('eval of h2o reports the overlap of heavy hitters of two runs', async () => {
  const flags = ['--tokens', '96', '--parts', 'attention', '--kv-dtypes', '', '-q'];
  const { code, stdout } = await runCli(engine, ['eval', ...flags, '--policies', 'h2o:chunk=24,local=4,heavy=4']);
  expect(code).toBe(0);
  const [, section] = stdout.split('Heavy hitters of h2o: Jaccard similarity');
  expect(section?.match(/^h2o\S+ +layer [0-5] +\d+ +[01]/gm)).toHaveLength(6);
});

describe('errors are one line', () => {
  test.each([
    [['--attention', 'sparkq'], /--attention: expected dense \| subquadratic .*, got "sparkq"/],
    [['--decode', 'h2o'], /--decode: expected .*h2o-prefill, which is for prefill only/],
    [['--attention', 'layers=9:dense'], /layers from 0 to 5, got 9/],
    [['--attention', 'dense-first=7'], /at most 6 layers/],
    [['--attention', 'subquadratic:block=2000'], /attention: expected blocks .* at most 1024 tokens, got 2000 tokens/],
    [
      ['--attention', `subquadratic:globals=${Array.from({ length: 17 }, (_, i) => i).join('+')}`],
      /at most 16 positions/,
    ],
    [['--ctx', '64', '--context', '64'], /--context: cannot be combined with --ctx/],
    [
      ['--attention', 'subquadratic:window=32', '--overflow', 'slide'],
      /overflow: expected stop \| error .* with this attention policy, got slide/,
    ],
    [['--prefill', 'h2o', '--overflow', 'evict'], /overflow: expected stop .* with this attention policy, got evict/],
  ])('%j', async (flags, message) => {
    const { code, stdout, stderr } = await run(...flags);
    expect(code).not.toBe(0);
    expect(stdout).toBe('');
    expect(stderr.split('\n').filter((line) => line.startsWith('winnow:'))).toHaveLength(1);
    expect(stderr).toMatch(message);
    expect(stderr).not.toMatch(/\n +at /);
  });
});

test('eval names the flag of an invalid policy', async () => {
  const { code, stderr } = await runCli(engine, ['eval', '--policies', 'dense|sparq:topk=0', '-q']);
  expect(code).toBe(2);
  expect(stderr).toContain('winnow: --policies: sparq: topk: expected an integer from 1, got 0');
});

test('explain-attention reports when the drawn phase is dense', async () => {
  const out = join(tmpdir(), `winnow-phase-${process.pid}.svg`);
  const flags = ['-p', 'The code of Alice is 31407.', '--out', out, '--attention', 'h2o', '--phase', 'decode'];
  const { code, stderr } = await runCli(engine, ['explain-attention', ...flags]);
  await rm(out, { force: true });
  expect(code).toBe(0);
  expect(stderr).toContain('the policy is for prefill: decode is dense');
});
