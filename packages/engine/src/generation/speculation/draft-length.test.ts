import { createRng } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import { DraftLength } from './draft-length.js';

/** Milliseconds of a step of this many tokens. */
type Cost = (numTokens: number) => number;

/** Generates tokens whose drafts are right with a probability; returns steps of each size and times after each token. */
function simulate(cost: Cost, probability: (token: number) => number, numTokens: number) {
  const rng = createRng(1);
  const length = new DraftLength();
  const ends: number[] = [];
  const counts: number[] = [];
  let ms = 0;
  while (ends.length < numTokens) {
    const count = length.choose(2, 1, 15);
    let accepted = 0;
    while (accepted < count && rng.nextFloat() < probability(ends.length + accepted)) accepted++;
    ms += cost(1 + count);
    length.noteStep(2, 1, count, accepted, cost(1 + count));
    for (let token = 0; token <= accepted; token++) ends.push(ms);
    counts.push(count);
  }
  return { ends, counts, speed: (ends.length * cost(1)) / ms };
}

/** The lowest speed over any 64 tokens, relative to plain decoding. */
function lowestSpeed(ends: readonly number[], plainMs: number): number {
  let lowest = Infinity;
  for (let begin = 0; begin + 64 < ends.length; begin++) {
    // accepted tokens of a step end together: a window begins with a step
    if (begin > 0 && ends[begin] === ends[begin - 1]) continue;
    const from = begin === 0 ? 0 : (ends[begin - 1] as number);
    lowest = Math.min(lowest, (64 * plainMs) / ((ends[begin + 63] as number) - from));
  }
  return lowest;
}

const shared: Cost = (numTokens) => 10 + numTokens - 1;
const separate: Cost = (numTokens) => 10 * numTokens;

describe('draft length', () => {
  test('long drafts where all are right and further tokens cost little', () => {
    const { counts, speed } = simulate(shared, () => 1, 500);
    expect(counts.at(-1)).toBeGreaterThan(10);
    expect(speed).toBeGreaterThan(4);
  });

  test('hardly any drafts where none is right', () => {
    const { ends } = simulate(shared, () => 0, 1000);
    expect(lowestSpeed(ends, shared(1))).toBeGreaterThanOrEqual(0.97);
  });

  test.each([0, 0.3, 0.7, 1])(
    'never below 0.97 of plain decoding at a rate of %d, also where steps share nothing',
    (rate) => {
      for (const cost of [shared, separate]) {
        expect(lowestSpeed(simulate(cost, () => rate, 600).ends, cost(1))).toBeGreaterThanOrEqual(0.97);
      }
    },
  );

  test('a text that stops repeating itself', () => {
    const { ends } = simulate(shared, (token) => (token % 300 < 150 ? 1 : 0), 1200);
    expect(lowestSpeed(ends, shared(1))).toBeGreaterThanOrEqual(0.97);
  });

  test('shorter drafts at lower rates', () => {
    const meanOf = (rate: number): number => {
      const { counts } = simulate(shared, () => rate, 2000);
      return counts.reduce((sum, count) => sum + count, 0) / counts.length;
    };
    expect(meanOf(0.9)).toBeGreaterThan(1.5 * meanOf(0.6));
  });

  test('no drafts before a step was measured', () => {
    expect(new DraftLength().choose(0, 1, 15)).toBe(0);
  });
});
