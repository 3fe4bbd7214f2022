/** `--kv-eviction`, `--kv-rotation`, and the notice of contexts beyond the trained length. */
import * as engine from '@winnow/engine';
import { expect, test } from 'vitest';
import { runCli } from './run-cli.js';

const run = (...argv: readonly string[]): ReturnType<typeof runCli> =>
  runCli(engine, ['run', '-p', 'The old man', '-n', '150', '--temperature', '0', '--ignore-eos', '--json', ...argv]);
const tokensOf = ({ stdout }: { readonly stdout: string }): number[] =>
  (JSON.parse(stdout) as { readonly tokens: number[] }).tokens;

const evict = ['-c', '64', '--overflow', 'evict'];
const evicting = new Map<string, ReturnType<typeof runCli>>();
/** Each once for all tests. */
function runEvicting(...flags: readonly string[]): ReturnType<typeof runCli> {
  const known = evicting.get(flags.join()) ?? run(...evict, ...flags);
  evicting.set(flags.join(), known);
  return known;
}

test('--kv-eviction selects the evicted tokens', async () => {
  const oldest = await runEvicting();
  const leastAttended = await runEvicting('--kv-eviction', 'least-attended');
  expect([oldest.code, leastAttended.code]).toEqual([0, 0]);
  expect(tokensOf(leastAttended)).toHaveLength(150);
  expect(tokensOf(leastAttended)).not.toEqual(tokensOf(oldest));
  const other = await run('--kv-eviction', 'least-attended', '--attention', 'streaming');
  expect(other.code).toBe(2);
  expect(other.stderr).toMatch(/^winnow: --kv-eviction: .*dense/);
  expect((await run('--kv-eviction', 'newest')).code).toBe(2);
});

test('--kv-eviction-first-tokens and --kv-eviction-recent-tokens protect tokens', async () => {
  const tokens = await Promise.all(
    [
      ['--kv-eviction', 'least-attended'],
      ['--kv-eviction-first-tokens', '4', '--kv-eviction-recent-tokens', '16'],
      ['--kv-eviction-first-tokens', '4', '--kv-eviction-recent-tokens', '59'], // leaves only the oldest to evict
      [],
    ].map(async (flags) => tokensOf(await runEvicting(...flags))),
  );
  expect(tokens[1]).toEqual(tokens[0]);
  expect(tokens[2]).not.toEqual(tokens[0]);
  expect(tokens[2]).toEqual(tokens[3]);
  expect(await run('--kv-eviction', 'oldest', '--kv-eviction-first-tokens', '4')).toMatchObject({
    code: 2,
    stderr: 'winnow: --kv-eviction-first-tokens: requires --kv-eviction least-attended\n',
  });
});

test('--kv-rotation changes only the rounding of keys', async () => {
  const plain = await run('-c', '256');
  const rotated = await run('-c', '256', '--kv-rotation', 'hadamard');
  expect(tokensOf(rotated)).toEqual(tokensOf(plain));
  expect((await run('--kv-rotation', 'givens')).code).toBe(2);
});

test('a context beyond the trained length gives a notice', async () => {
  expect((await run('-c', '2048', '-n', '1')).stderr).not.toMatch(/trained/);
  expect((await run('-c', '2049', '-n', '1')).stderr).toMatch(/winnow: 2049 tokens exceed the trained context of 2048/);
});
