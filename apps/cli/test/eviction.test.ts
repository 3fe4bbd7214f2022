/** `--kv-eviction`, `--kv-rotation`, and the notice of contexts beyond what a model was trained for. */
import * as engine from '@winnow/engine';
import { expect, test } from 'vitest';
import { runCli } from './run-cli.js';

const run = (...argv: readonly string[]): ReturnType<typeof runCli> =>
  runCli(engine, ['run', '-p', 'The old man', '-n', '150', '--temperature', '0', '--ignore-eos', '--json', ...argv]);
const tokensOf = ({ stdout }: { readonly stdout: string }): number[] =>
  (JSON.parse(stdout) as { readonly tokens: number[] }).tokens;

test('--kv-eviction says which tokens go', async () => {
  const evict = ['-c', '64', '--overflow', 'evict'];
  const oldest = await run(...evict);
  const leastAttended = await run(...evict, '--kv-eviction', 'least-attended');
  expect([oldest.code, leastAttended.code]).toEqual([0, 0]);
  expect(tokensOf(leastAttended)).toHaveLength(150);
  expect(tokensOf(leastAttended)).not.toEqual(tokensOf(oldest));
  const other = await run('--kv-eviction', 'least-attended', '--attention', 'streaming');
  expect(other.code).toBe(2);
  expect(other.stderr).toMatch(/^winnow: --kv-eviction: .*dense/);
  expect((await run('--kv-eviction', 'newest')).code).toBe(2);
});

test('--kv-rotation changes nothing but the rounding of keys', async () => {
  const plain = await run('-c', '256');
  const rotated = await run('-c', '256', '--kv-rotation', 'hadamard');
  expect(tokensOf(rotated)).toEqual(tokensOf(plain));
  expect((await run('--kv-rotation', 'givens')).code).toBe(2);
});

test('more context than the model was trained for gives a notice', async () => {
  expect((await run('-c', '2048')).stderr).not.toMatch(/trained/);
  expect((await run('-c', '2049')).stderr).toMatch(/winnow: 2049 tokens exceed the trained context of 2048/);
});
