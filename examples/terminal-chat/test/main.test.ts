/** Runs the example as a process, with the built packages. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

const program = fileURLToPath(new URL('../main.ts', import.meta.url));

async function chat(lines: readonly string[], argv: readonly string[] = []) {
  const child = spawn(process.execPath, [program, '--temperature', '0', ...argv], { stdio: 'pipe' });
  let stdout = '';
  let stderr = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  child.stdin.end(lines.map((line) => `${line}\n`).join(''));
  const [code] = await once(child, 'close');
  return { code: code as number | null, stdout, stderr };
}

const numbersOf = (stdout: string): number[][] =>
  [...stdout.matchAll(/\[(\d+) prompt tokens, (\d+) cached, (\d+) generated/g)].map((match) =>
    match.slice(1, 4).map(Number),
  );

test('answers, remembers and exits at the end of input', async () => {
  const story = 'It rained all day and the sea was gray. The code of Alice is 31407. The boats stayed in the harbor.';
  const { code, stdout, stderr } = await chat([story, '', 'What is the code of Alice?']);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(stdout).toContain('you> The code of Alice is 31407.\n[');
  const [first, second] = numbersOf(stdout);
  expect(first?.[1]).toBe(0);
  // the session holds the story and the answer except its last token
  expect(second?.[1]).toBeGreaterThanOrEqual((first?.[0] ?? 0) + (first?.[2] ?? 0) - 1);
});

test('/reset clears the history, /quit exits', async () => {
  const fact = 'The code of Alice is 31407.';
  const { code, stdout } = await chat([fact, '/reset', fact, '/quit', fact], ['--max-tokens', '4']);
  expect(code).toBe(0);
  const numbers = numbersOf(stdout);
  expect(numbers).toHaveLength(2);
  expect(numbers[1]?.[0]).toBe(numbers[0]?.[0]);
});

test('ends quietly when its reader closes', async () => {
  const child = spawn(process.execPath, [program], { stdio: 'pipe' });
  let stderr = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  child.stdout.destroy();
  expect(await once(child, 'close')).toEqual([0, null]);
  expect(stderr).toBe('');
});
