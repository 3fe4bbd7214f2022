import { PassThrough } from 'node:stream';
import { expect, test } from 'vitest';
import { createProgress } from './progress.js';

function terminal(columns = 100) {
  const stream = Object.assign(new PassThrough({ highWaterMark: 2 ** 20 }), { isTTY: true, columns });
  let nowMs = 0;
  const progress = createProgress(stream, { now: () => nowMs });
  return {
    progress,
    pass: (ms: number) => {
      nowMs += ms;
    },
    /** Everything that was written since the last call, without escape sequences. */
    shown: () => plain(String(stream.read() ?? '')),
    raw: () => String(stream.read() ?? ''),
  };
}

const escapes = new RegExp(`${String.fromCodePoint(27)}(\\[[0-9;?]*[A-Za-z]|[78])`, 'g');
const plain = (text: string): string => text.replaceAll(escapes, '');

test('a bar shows amounts, rate and the time that is left', () => {
  const { progress, pass, shown } = terminal();
  progress.show('download', 0, 400e6, 'bytes');
  expect(shown()).toContain('download [------------------------] 0%  0 B of 400 MB');
  pass(2000);
  progress.show('download', 100e6, 400e6, 'bytes');
  progress.clear(); // draws what was shown last
  expect(shown()).toContain('25%  100 MB of 400 MB  50 MB/s  6 s left');
  progress.show('download', 0, 400e6, 'bytes');
  pass(180_000);
  progress.show('download', 200e6, 400e6, 'bytes');
  progress.clear();
  expect(shown()).toContain('50%  200 MB of 400 MB  1.11 MB/s  3 min left');
});

test('the rate counts from the first value, which a resumed download does not start at 0', () => {
  const { progress, pass, shown } = terminal();
  progress.show('prompt', 1000, 2000, 'tokens');
  pass(1000);
  progress.show('prompt', 1500, 2000, 'tokens');
  progress.clear();
  expect(shown()).toContain('75%  1500 of 2000 tokens  500 tokens/s  1 s left');
});

test('steps with labels of their own have the rate of the whole work; other work has another', () => {
  const { progress, pass, shown } = terminal();
  progress.show('dense', 0, 11, 'steps');
  pass(4000);
  progress.show('window=64', 1, 11, 'steps');
  progress.clear();
  expect(shown()).toContain('window=64 [==----------------------] 9%  1 of 11 steps  0.25 steps/s  40 s left');
  progress.show('dense', 0, 11, 'steps');
  pass(1000);
  progress.show('window=64', 1, 11, 'steps');
  progress.clear();
  expect(shown()).toContain('1 steps/s');
});

test('a phase without amounts is a line that the next bar replaces', () => {
  const { progress, raw } = terminal();
  progress.wait('prepare');
  expect(raw()).toContain('prepare ...');
  progress.show('prompt', 64, 128, 'tokens');
  expect(raw().startsWith('\r\u001B[K')).toBe(true);
  progress.clear();
});

test('never hides the cursor or changes line wrapping, which a signal would leave so', () => {
  const { progress, raw } = terminal();
  progress.show('load', 1, 2, 'bytes');
  progress.clear();
  expect(raw()).not.toContain('\u001B[?');
});

test('long labels leave room for the rest of a narrow terminal', () => {
  const { progress, shown } = terminal(60);
  progress.show(`download ${'x'.repeat(80)}.gguf`, 1, 2, 'bytes');
  const [line = ''] = shown().split('\r');
  expect(line.length).toBeLessThanOrEqual(60);
  expect(line).toContain('50%');
  progress.clear();
});

test('shows nothing without a terminal, or when it is to be quiet', () => {
  for (const [isTTY, isQuiet] of [
    [false, false],
    [true, true],
  ]) {
    const stream = Object.assign(new PassThrough(), { isTTY: isTTY as boolean });
    const progress = createProgress(stream, { isQuiet: isQuiet as boolean });
    progress.wait('prepare');
    progress.show('load', 1, 2, 'bytes');
    progress.clear();
    expect(stream.read()).toBeNull();
  }
});
