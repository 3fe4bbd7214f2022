/** Runs the example as a process, with the built packages. */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const program = fileURLToPath(new URL('../main.ts', import.meta.url));
const run = promisify(execFile);

async function ask(...argv: string[]): Promise<string> {
  const { stdout, stderr } = await run(process.execPath, [program, ...argv]);
  expect(stderr).toBe('');
  return stdout;
}

test.each([
  ['with its policy', []],
  ['dense', ['--attention', 'dense']],
])('finds both codes, %s', async (_name, argv) => {
  const stdout = await ask(...argv);
  expect(stdout).toContain('What is the code of Alice?\nThe code of Alice is 31407.\n');
  expect(stdout).toContain('What is the code of Helen?\nThe code of Helen is 90216.\n');
  const known = [...stdout.matchAll(/\[(\d+) tokens, (\d+) of them known/g)].map((match) => match.slice(1).map(Number));
  expect(known).toHaveLength(2);
  expect(known[0]?.[1]).toBe(0);
  // everything but the question
  expect(known[1]?.[1]).toBeGreaterThan((known[1]?.[0] ?? 0) * 0.9);
});

test('a policy that attends only to the end does not find them', async () => {
  const stdout = await ask('What is the code of Helen?', '--attention', 'streaming:window=256');
  expect(stdout).toContain('streaming');
  expect(stdout).not.toContain('90216');
});
