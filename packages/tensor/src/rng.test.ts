import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ArgumentError } from './errors.js';
import { createRng, splitMix64, type RngState } from './rng.js';

function take(count: number, next: () => number): number[] {
  return Array.from({ length: count }, next);
}

test('xoshiro128** from state 1 2 3 4 gives the values of the reference implementation', () => {
  // Vector of the Rust crate rand_xoshiro, made with xoshiro128starstar.c v1.1.
  const rng = createRng(0);
  rng.restore([1, 2, 3, 4]);
  expect(take(10, rng.nextUint32)).toEqual([
    11520, 0, 5927040, 70819200, 2031721883, 1637235492, 1287239034, 3734860849, 3729100597, 4258142804,
  ]);
});

test('nextFloat has 53 bits: 27 of one draw, then 26 of the next', () => {
  const rng = createRng(7);
  const words = createRng(7);
  for (let i = 0; i < 100; i++) {
    const [high, low] = [words.nextUint32(), words.nextUint32()].map(BigInt) as [bigint, bigint];
    expect(rng.nextFloat()).toBe(Number(((high >> 5n) << 26n) | (low >> 6n)) / 2 ** 53);
  }
});

test('SplitMix64 gives the values of the reference implementation', () => {
  // Vector of Rosetta Code, "Pseudo-random numbers/Splitmix64".
  expect(splitMix64(1234567n, 5)).toEqual([
    6457827717110365317n,
    3203168211198807973n,
    9817491932198370423n,
    4593380528125082431n,
    16408922859458223821n,
  ]);
});

test('the state of a new stream is the first two SplitMix64 outputs, low halves first', () => {
  const [first, second] = splitMix64(1234567n, 2);
  const words = [first & 0xffffffffn, first >> 32n, second & 0xffffffffn, second >> 32n].map(Number);
  expect(createRng(1234567).state()).toEqual(words);
});

test('a stream continues from its state, through JSON', () => {
  fc.assert(
    fc.property(fc.maxSafeInteger(), fc.nat(50), (seed, numSkipped) => {
      const rng = createRng(seed);
      take(numSkipped, rng.nextUint32);
      const saved = JSON.parse(JSON.stringify(rng.state())) as RngState;
      const expected = take(20, () => rng.nextGaussian());
      const other = createRng(1);
      other.restore(saved);
      expect(take(20, () => other.nextGaussian())).toEqual(expected);
    }),
  );
});

test('state is a copy', () => {
  const rng = createRng(3);
  const before = rng.state();
  const copy = [...before];
  rng.nextUint32();
  expect(before).toEqual(copy);
});

// The bounds are six standard deviations of each estimate, for a fixed seed.
describe('distribution', () => {
  const numDraws = 20000;

  test('nextFloat is uniform in [0, 1)', () => {
    const rng = createRng(11);
    const draws = take(numDraws, () => rng.nextFloat());
    expect(draws.every((x) => x >= 0 && x < 1)).toBe(true);
    const mean = draws.reduce((a, b) => a + b) / numDraws;
    expect(Math.abs(mean - 0.5)).toBeLessThan(6 * Math.sqrt(1 / 12 / numDraws));
  });

  test('nextGaussian has mean 0, variance 1 and normal fourth moment', () => {
    const rng = createRng(12);
    const draws = take(numDraws, () => rng.nextGaussian());
    const moment = (power: number): number => draws.reduce((sum, x) => sum + x ** power, 0) / numDraws;
    expect(Math.abs(moment(1))).toBeLessThan(6 * Math.sqrt(1 / numDraws));
    expect(Math.abs(moment(2) - 1)).toBeLessThan(6 * Math.sqrt(2 / numDraws));
    expect(Math.abs(moment(4) - 3)).toBeLessThan(6 * Math.sqrt(96 / numDraws));
  });

  test('nextInt hits every result equally often', () => {
    const rng = createRng(13);
    const counts = new Uint32Array(7);
    for (let i = 0; i < numDraws; i++) counts[rng.nextInt(7)]++;
    const expected = numDraws / 7;
    for (const count of counts) expect(Math.abs(count - expected)).toBeLessThan(6 * Math.sqrt(expected * (6 / 7)));
  });

  test('nextInt is unbiased by rejection', () => {
    // With bound 3 * 2^30, a plain remainder would give results below 2^30 half of the time instead of a third.
    const rng = createRng(14);
    const bound = 3 * 2 ** 30;
    const small = take(numDraws, () => rng.nextInt(bound)).filter((x) => x < 2 ** 30).length;
    expect(Math.abs(small - numDraws / 3)).toBeLessThan(6 * Math.sqrt((numDraws * 2) / 9));
  });
});

test('nextInt accepts the bounds 1 and 2^32', () => {
  const rng = createRng(5);
  expect(rng.nextInt(1)).toBe(0);
  const before = rng.state();
  const drawn = rng.nextInt(2 ** 32);
  rng.restore(before);
  rng.nextUint32();
  expect(drawn).toBeLessThan(2 ** 32);
});

test('rejects invalid seeds, bounds and states', () => {
  const rng = createRng(-1);
  for (const seed of [0.5, NaN, Infinity, 2 ** 53]) expect(() => createRng(seed)).toThrow(ArgumentError);
  for (const bound of [0, -1, 1.5, NaN, 2 ** 32 + 1]) expect(() => rng.nextInt(bound)).toThrow(ArgumentError);
  const states: unknown[] = [
    [0, 0, 0, 0],
    [1, 2, 3],
    [1, 2, 3, -1],
    [1, 2, 3, 0.5],
    [1, 2, 3, 2 ** 32],
    null,
    undefined,
  ];
  for (const state of states) expect(() => rng.restore(state as RngState)).toThrow(ArgumentError);
});
