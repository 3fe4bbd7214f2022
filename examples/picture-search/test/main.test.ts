/** Runs the example as a process, with the built packages. */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const program = fileURLToPath(new URL('../main.ts', import.meta.url));
const run = promisify(execFile);

/** The pictures are numbered by color, then by shape. */
const colors = ['red', 'green', 'blue', 'yellow'];
const shapes = ['circle', 'square', 'triangle'];

test.each([
  ['a blue square', '07.png'],
  ['a red circle', '00.png'],
  ['a yellow triangle', '11.png'],
])('%s is on %s', async (words, expected) => {
  const { stdout, stderr } = await run(process.execPath, [program, words, '--limit', '12']);
  expect(stderr).toBe('');
  const names = stdout
    .trim()
    .split('\n')
    .map((line) => line.split('  ')[1]);
  expect(names).toHaveLength(colors.length * shapes.length);
  expect(names[0]).toBe(expected);
});
