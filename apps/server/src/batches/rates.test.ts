import { expect, test } from 'vitest';
import { BatchRates } from './rates.js';

test('the rate is that of the last minute', () => {
  let ms = 0;
  const rates = new BatchRates(() => ms);
  expect(rates.rateOf('a', 5, 10)).toEqual({ linesPerSecond: 0 });
  for (; ms <= 120_000; ms += 1000) rates.add('a', ms < 60_000 ? 0 : (ms - 60_000) / 100); // 10 lines/s in the second minute
  ms = 120_000;
  expect(rates.rateOf('a', 600, 50)).toEqual({ linesPerSecond: 10, secondsLeft: 5 });
  expect(rates.rateOf('b', 600, 50)).toEqual({ linesPerSecond: 0 });
  rates.forget('a');
  expect(rates.rateOf('a', 600, 50)).toEqual({ linesPerSecond: 0 });
});

test('no time is left known while nothing is answered', () => {
  let ms = 0;
  const rates = new BatchRates(() => ms);
  rates.add('a', 3);
  ms = 10_000;
  expect(rates.rateOf('a', 3, 50)).toEqual({ linesPerSecond: 0 });
});
