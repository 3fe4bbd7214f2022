import { describe, expect, test } from 'vitest';
import { measure, median, timingOf } from './measure.js';

describe('measure', () => {
  test('runs contenders in turns, with the order reversed every other round, and excludes the warm-up', async () => {
    const calls: string[] = [];
    let next = 0;
    const contender = (name: string) => ({
      async run() {
        calls.push(name);
        return ++next;
      },
    });
    const timings = await measure({ a: contender('a'), b: contender('b') }, { warmups: 1, rounds: 3 });
    expect(calls.join('')).toBe('baabbaab');
    expect(timings.a.samplesMs).toEqual([3, 6, 7]);
    expect(timings.b).toEqual({ samplesMs: [4, 5, 8], medianMs: 5, minMs: 4 });
  });

  test('times contenders that do not report a time', async () => {
    const { a } = await measure({ a: { run: () => Promise.resolve() } }, { warmups: 0, rounds: 2 });
    expect(a.samplesMs).toHaveLength(2);
    for (const ms of a.samplesMs) expect(ms).toBeGreaterThanOrEqual(0);
  });

  test('a failure ends the measurement', async () => {
    const failing = { run: () => Promise.reject(new Error('broken')) };
    await expect(measure({ failing }, { warmups: 0, rounds: 1 })).rejects.toThrow('broken');
  });
});

describe('median', () => {
  test.each([
    [[3], 3],
    [[2, 1], 1.5],
    [[9, 1, 5], 5],
    [[4, 1, 2, 10], 3],
  ])('%j', (values, expected) => expect(median(values)).toBe(expected));

  test('of nothing', () => expect(() => timingOf([])).toThrow('at least one'));
});
