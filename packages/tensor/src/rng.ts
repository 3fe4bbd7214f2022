/**
 * Seeded random numbers: xoshiro128** 1.1 of D. Blackman and S. Vigna (https://prng.di.unimi.it/xoshiro128starstar.c,
 * arXiv:1805.01407), its 128-bit state seeded by SplitMix64 as its authors recommend. Not cryptographically secure.
 */
import { ArgumentError } from './errors.js';

/** Four unsigned 32-bit integers, not all zero; plain data that can be stored as JSON. */
export type RngState = readonly [number, number, number, number];

/** A stream of random numbers. The same seed gives the same integers and floats everywhere. */
export interface Rng {
  /** Uniform in [0, 2^32). One step of the generator. */
  nextUint32(): number;
  /** Uniform multiple of 2^-53 in [0, 1). Two steps. When stored as float32 it may round up to 1. */
  nextFloat(): number;
  /**
   * Normal with mean 0 and variance 1 (Box-Muller). Four steps. Uses `Math.log` and `Math.cos`, whose last bit may
   * differ between JavaScript engines.
   */
  nextGaussian(): number;
  /**
   * Unbiased uniform integer in [0, bound). At least one step.
   * @throws {ArgumentError} unless `bound` is an integer from 1 to 2^32
   */
  nextInt(bound: number): number;
  /** The state of the stream. */
  state(): RngState;
  /**
   * Continues from a state returned by `state()`.
   * @throws {ArgumentError} when the state is invalid
   */
  restore(state: RngState): void;
}

/**
 * Creates a generator for this seed. Similar seeds give unrelated streams.
 * @throws {ArgumentError} unless `seed` is a safe integer; negative ones are taken modulo 2^64
 */
export function createRng(seed: number): Rng {
  if (!Number.isSafeInteger(seed)) {
    throw new ArgumentError({ argument: 'seed', expected: 'a safe integer', actual: String(seed) });
  }
  const words = splitMix64(BigInt(seed), 2);
  const s = new Uint32Array(4);
  for (let i = 0; i < 4; i++) s[i] = Number((words[i >> 1] >> BigInt((i & 1) * 32)) & 0xffffffffn);
  return rngOver(s);
}

/**
 * The first `count` outputs of SplitMix64: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number
 * generators", OOPSLA 2014; constants of https://prng.di.unimi.it/splitmix64.c
 */
export function splitMix64(seed: bigint, count: number): bigint[] {
  const outputs: bigint[] = [];
  let counter = seed;
  for (let i = 0; i < count; i++) {
    counter = BigInt.asUintN(64, counter + 0x9e3779b97f4a7c15n);
    let mixed = counter;
    mixed = BigInt.asUintN(64, (mixed ^ (mixed >> 30n)) * 0xbf58476d1ce4e5b9n);
    mixed = BigInt.asUintN(64, (mixed ^ (mixed >> 27n)) * 0x94d049bb133111ebn);
    outputs.push(mixed ^ (mixed >> 31n));
  }
  return outputs;
}

function rotateLeft(value: number, bits: number): number {
  return (value << bits) | (value >>> (32 - bits));
}

function rngOver(s: Uint32Array): Rng {
  const nextUint32 = (): number => {
    const result = Math.imul(rotateLeft(Math.imul(s[1], 5), 7), 9) >>> 0;
    const shifted = s[1] << 9;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = rotateLeft(s[3], 11);
    return result;
  };
  const nextFloat = (): number => {
    const high = nextUint32() >>> 5;
    const low = nextUint32() >>> 6;
    return (high * 2 ** 26 + low) * 2 ** -53;
  };
  return {
    nextUint32,
    nextFloat,
    nextGaussian() {
      const radius = Math.sqrt(-2 * Math.log(1 - nextFloat()));
      return radius * Math.cos(2 * Math.PI * nextFloat());
    },
    nextInt(bound) {
      if (!Number.isInteger(bound) || bound < 1 || bound > 2 ** 32) {
        throw new ArgumentError({ argument: 'bound', expected: 'an integer from 1 to 2^32', actual: String(bound) });
      }
      // Rejects numbers that would bias towards small results.
      const limit = 2 ** 32 - (2 ** 32 % bound);
      for (;;) {
        const drawn = nextUint32();
        if (drawn < limit) return drawn % bound;
      }
    },
    state: () => [s[0], s[1], s[2], s[3]],
    restore(state) {
      const valid =
        Array.isArray(state) &&
        state.length === 4 &&
        state.every((word) => Number.isInteger(word) && word >= 0 && word < 2 ** 32) &&
        state.some((word) => word !== 0);
      if (!valid) {
        throw new ArgumentError({
          argument: 'state',
          expected: 'four unsigned 32-bit integers, not all zero',
          actual: JSON.stringify(state) ?? String(state),
        });
      }
      s.set(state);
    },
  };
}
