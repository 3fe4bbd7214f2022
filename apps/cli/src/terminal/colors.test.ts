import { expect, test } from 'vitest';
import { hasColors } from './colors.js';

test.each<readonly [Readonly<Record<string, string>>, onTerminal: boolean, onPipe: boolean]>([
  [{}, true, false],
  [{ NO_COLOR: '1' }, false, false],
  [{ NO_COLOR: '' }, true, false],
  [{ TERM: 'dumb' }, false, false],
  [{ FORCE_COLOR: '0' }, false, false],
  [{ FORCE_COLOR: 'false' }, false, false],
  [{ NO_COLOR: '1', TERM: 'dumb', FORCE_COLOR: '1' }, true, true],
])('%j: colors on a terminal %s, on a pipe %s', (env, onTerminal, onPipe) => {
  expect([hasColors({ isTTY: true }, env), hasColors({ isTTY: false }, env)]).toEqual([onTerminal, onPipe]);
});
