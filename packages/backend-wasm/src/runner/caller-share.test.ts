import { expect, test } from 'vitest';
import { MeasuredShare } from './caller-share.js';

/** Where each of many runs was, if they take these times here and on workers. */
function placesOf(hereMs: number, awayMs: number, numRuns = 200): readonly ('here' | 'away')[] {
  const share = new MeasuredShare(2);
  return Array.from({ length: numRuns }, () => {
    const { isShort } = share;
    share.observe(isShort ? hereMs : awayMs);
    return isShort ? 'here' : 'away';
  });
}

test('short runs stay on the calling thread', () => {
  expect(placesOf(1.9, 1)).not.toContain('away');
});

test('longer ones go to workers that are faster', () => {
  expect(placesOf(3, 1.6).slice(20)).not.toContain('here');
});

test('they come back where workers are slower', () => {
  expect(placesOf(3, 3.5).slice(40)).not.toContain('away');
});

test('but not if they take far too long', () => {
  expect(placesOf(5, 6).slice(40)).not.toContain('here');
});

test('a first run that has to wake the workers does not count', () => {
  const share = new MeasuredShare(2);
  let numAway = 0;
  for (let run = 0; run < 1000; run++) {
    if (!share.isShort) numAway++;
    share.observe(share.isShort ? 3 : numAway === 1 ? 10 : 1.6);
  }
  expect(numAway).toBeGreaterThan(900);
});

test('workers that were slower for a while are tried again', () => {
  const share = new MeasuredShare(2);
  let numAway = 0;
  for (let run = 0; run < 2000; run++) {
    if (!share.isShort && run >= 1000) numAway++;
    share.observe(share.isShort ? 3 : run < 500 ? 6 : 1.6);
  }
  expect(numAway).toBeGreaterThan(700);
});
