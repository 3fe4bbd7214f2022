/**
 * RoPE frequencies, in radians per position, with the scalings that extend a model's context. Computed once when
 * a model is built; the `rope` op only multiplies.
 */
import { ArgumentError } from '@winnow/tensor';

/** How positions are scaled beyond the originally trained context. */
export type RopeScaling =
  /** All frequencies divided by `factor` (position interpolation). arXiv:2306.15595 */
  | { readonly type: 'linear'; readonly factor: number }
  /** The base is raised so that the slowest pair is scaled by `factor` and the fastest is unchanged ("NTK-aware"). */
  | { readonly type: 'ntk'; readonly factor: number }
  /** Fast pairs are unchanged, slow pairs are interpolated, with a ramp in between. arXiv:2309.00071 section 3.2 */
  | {
      readonly type: 'yarn';
      readonly factor: number;
      readonly originalContextLength: number;
      readonly betaFast?: number;
      readonly betaSlow?: number;
      readonly attentionFactor?: number;
      /** Whether the ends of the ramp are rounded to whole pairs. Default: true. */
      readonly truncate?: boolean;
    }
  /** Like YaRN with the ramp over wavelengths, without amplitude. Llama 3.1 */
  | {
      readonly type: 'llama3';
      readonly factor: number;
      readonly originalContextLength: number;
      readonly lowFreqFactor: number;
      readonly highFreqFactor: number;
    }
  /** The frequency of pair `i` divided by `factors[i]`, as GGUF files store the Llama 3 and LongRoPE scalings. */
  | { readonly type: 'factors'; readonly factors: ArrayLike<number>; readonly attentionFactor?: number };

export interface RopeOptions {
  readonly base: number;
  /** Number of rotated dims, even. */
  readonly rotaryDim: number;
  readonly scaling?: RopeScaling;
}

/** Inputs of the `rope` op. */
export interface RopeTable {
  readonly frequencies: Float32Array; // [rotaryDim / 2], radians per position
  /** Factor of the rotated dims of q and k. */
  readonly amplitude: number;
}

/** `frequencies[i] = base^(-2 i / rotaryDim)`, then the scaling. @throws {ArgumentError} */
export function ropeFrequencies({ base, rotaryDim, scaling }: RopeOptions): RopeTable {
  if (!Number.isSafeInteger(rotaryDim) || rotaryDim < 2 || rotaryDim % 2 !== 0) {
    throw new ArgumentError({ argument: 'rotaryDim', expected: 'a positive even integer', actual: String(rotaryDim) });
  }
  positive('rope base', base);
  const numPairs = rotaryDim / 2;
  const plain = (usedBase: number): number[] =>
    Array.from({ length: numPairs }, (_, i) => usedBase ** ((-2 * i) / rotaryDim));
  if (scaling === undefined) return table(plain(base));
  if (scaling.type === 'factors') {
    if (scaling.factors.length !== numPairs) {
      throw new ArgumentError({
        argument: 'rope factors',
        expected: `${numPairs} values`,
        actual: `${scaling.factors.length} values`,
      });
    }
    const { factors } = scaling;
    return table(
      plain(base).map((speed, i) => speed / positive(`rope factor ${i}`, factors[i] as number)),
      scaling.attentionFactor,
    );
  }
  const factor = positive('rope scaling factor', scaling.factor);
  switch (scaling.type) {
    case 'linear':
      return table(plain(base).map((speed) => speed / factor));
    case 'ntk':
      return table(plain(rotaryDim === 2 ? base : base * factor ** (rotaryDim / (rotaryDim - 2))));
    case 'llama3':
      return table(plain(base).map((speed) => llama3Speed(speed, scaling)));
    case 'yarn': {
      const ramp = yarnRamp(base, rotaryDim, scaling);
      const speeds = plain(base).map((speed, i) => (speed / factor) * ramp(i) + speed * (1 - ramp(i)));
      return table(speeds, scaling.attentionFactor ?? (factor <= 1 ? 1 : 1 + 0.1 * Math.log(factor)));
    }
  }
}

function table(speeds: readonly number[], amplitude = 1): RopeTable {
  for (const [pair, speed] of speeds.entries()) positive(`rope speed of pair ${pair}`, speed);
  return { frequencies: Float32Array.from(speeds), amplitude: positive('rope attention factor', amplitude) };
}

/** 0 for unchanged pairs, 1 for interpolated pairs. */
function yarnRamp(
  base: number,
  rotaryDim: number,
  scaling: Extract<RopeScaling, { type: 'yarn' }>,
): (pair: number) => number {
  const old = positive('rope original context length', scaling.originalContextLength);
  const pairOfTurns = (turns: number): number =>
    (rotaryDim * Math.log(old / (turns * 2 * Math.PI))) / (2 * Math.log(base));
  const [first, last] = [pairOfTurns(scaling.betaFast ?? 32), pairOfTurns(scaling.betaSlow ?? 1)];
  const rounds = scaling.truncate ?? true;
  const low = Math.max(0, rounds ? Math.floor(first) : first);
  const high = Math.min(rotaryDim - 1, rounds ? Math.ceil(last) : last);
  return (pair) => clamp01((pair - low) / Math.max(0.001, high - low));
}

function llama3Speed(speed: number, scaling: Extract<RopeScaling, { type: 'llama3' }>): number {
  const { factor, lowFreqFactor, highFreqFactor } = scaling;
  const old = positive('rope original context length', scaling.originalContextLength);
  // where they are equal, as in Llama 4 Scout, no pair is in between
  if (!(highFreqFactor >= lowFreqFactor)) {
    throw new ArgumentError({
      argument: 'rope high_freq_factor',
      expected: `at least low_freq_factor ${lowFreqFactor}`,
      actual: String(highFreqFactor),
    });
  }
  const wavelength = (2 * Math.PI) / speed;
  const smooth = clamp01((old / wavelength - lowFreqFactor) / (highFreqFactor - lowFreqFactor));
  return speed * ((1 - smooth) / factor + smooth);
}

function clamp01(value: number): number {
  return Math.min(1, Math.max(0, value));
}

function positive(argument: string, value: number): number {
  if (!Number.isFinite(value) || value <= 0) {
    throw new ArgumentError({ argument, expected: 'a positive number', actual: String(value) });
  }
  return value;
}
