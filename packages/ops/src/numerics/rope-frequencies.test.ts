import { readFileSync } from 'node:fs';
import { ArgumentError } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { ropeFrequencies, type RopeOptions, type RopeScaling } from './rope-frequencies.js';

const { rope } = JSON.parse(readFileSync(new URL('./__fixtures__/closed-forms.json', import.meta.url), 'utf8')) as {
  rope: { options: RopeOptions; frequencies: number[]; amplitude: number }[];
};

describe('ropeFrequencies', () => {
  it.each(rope.map((entry) => [JSON.stringify(entry.options), entry] as const))(
    'of %s are the closed form, rounded to f32',
    (_name, { options, frequencies, amplitude }) => {
      const actual = ropeFrequencies(options);
      expect(actual.frequencies).toHaveLength(frequencies.length);
      for (const [pair, expected] of frequencies.entries()) {
        // half an f32 unit for the rounding, and the error of f64
        expect(Math.abs(actual.frequencies[pair] - expected), `pair ${pair}`).toBeLessThanOrEqual(
          expected * (2 ** -24 + 2 ** -45),
        );
      }
      expect(actual.amplitude).toBeCloseTo(amplitude, 14);
    },
  );

  it('yarn without rounded ends of the ramp is that of transformers 5.18', () => {
    const scaling = { type: 'yarn', factor: 32, originalContextLength: 4096, truncate: false } as const;
    const { frequencies, amplitude } = ropeFrequencies({ base: 150_000, rotaryDim: 16, scaling });
    // computed in f32 there: a few roundings, which the ramp amplifies by up to the factor
    const expected = [
      1, 0.22541800141334534, 0.05081327259540558, 0.006794959306716919, 0.0004564839182421565, 1.818833698052913e-5,
      4.099978468730114e-6, 9.242089618055616e-7,
    ];
    for (const [pair, value] of expected.entries()) {
      expect(Math.abs(frequencies[pair] / value - 1)).toBeLessThan(32 * 2 ** -22);
    }
    expect(amplitude).toBeCloseTo(1.3465735902799727, 14);
    const rounded = ropeFrequencies({ base: 150_000, rotaryDim: 16, scaling: { ...scaling, truncate: true } });
    expect(Math.abs(rounded.frequencies[3] / expected[3] - 1)).toBeGreaterThan(0.01);
  });

  it('ntk keeps the highest frequency and divides the lowest by the whole factor', () => {
    const plain = ropeFrequencies({ base: 10000, rotaryDim: 64 }).frequencies;
    const ntk = ropeFrequencies({ base: 10000, rotaryDim: 64, scaling: { type: 'ntk', factor: 8 } }).frequencies;
    expect(ntk[0]).toBe(1);
    expect(plain[31] / ntk[31]).toBeCloseTo(8, 5);
    for (let pair = 1; pair < 32; pair++) expect(ntk[pair] / plain[pair]).toBeLessThan(ntk[pair - 1] / plain[pair - 1]);
  });

  it('ntk with one pair changes nothing', () => {
    expect([...ropeFrequencies({ base: 10, rotaryDim: 2, scaling: { type: 'ntk', factor: 8 } }).frequencies]).toEqual([
      1,
    ]);
  });

  it('factors divide each frequency and may include a scale', () => {
    const scaling: RopeScaling = { type: 'factors', factors: [1, 2, 4, 8], attentionFactor: 1.5 };
    const { frequencies, amplitude } = ropeFrequencies({ base: 16, rotaryDim: 8, scaling });
    expect([...frequencies]).toEqual([1, 0.25, 0.0625, 0.015625]);
    expect(amplitude).toBe(1.5);
  });

  it('yarn with a factor of 1 changes nothing', () => {
    const scaling: RopeScaling = { type: 'yarn', factor: 1, originalContextLength: 2048 };
    expect(ropeFrequencies({ base: 10000, rotaryDim: 64, scaling })).toEqual(
      ropeFrequencies({ base: 10000, rotaryDim: 64 }),
    );
  });
});

describe('invalid settings of ropeFrequencies', () => {
  it.each<[string, RopeOptions]>([
    ['an odd dim', { base: 10000, rotaryDim: 7 }],
    ['no dims', { base: 10000, rotaryDim: 0 }],
    ['a base of 0', { base: 0, rotaryDim: 8 }],
    ['a base of NaN', { base: NaN, rotaryDim: 8 }],
    ['a factor of 0', { base: 10000, rotaryDim: 8, scaling: { type: 'linear', factor: 0 } }],
    ['an infinite factor', { base: 10000, rotaryDim: 8, scaling: { type: 'ntk', factor: Infinity } }],
    ['too few factors', { base: 10000, rotaryDim: 8, scaling: { type: 'factors', factors: [1, 2, 3] } }],
    ['a negative factor', { base: 10000, rotaryDim: 4, scaling: { type: 'factors', factors: [1, -2] } }],
    [
      'bands that cross',
      {
        base: 10000,
        rotaryDim: 4,
        scaling: { type: 'llama3', factor: 8, originalContextLength: 8192, lowFreqFactor: 4, highFreqFactor: 3 },
      },
    ],
    ['no old context', { base: 10000, rotaryDim: 4, scaling: { type: 'yarn', factor: 8, originalContextLength: 0 } }],
    [
      'a ramp of NaN',
      { base: 10000, rotaryDim: 4, scaling: { type: 'yarn', factor: 8, originalContextLength: 99, betaFast: NaN } },
    ],
    [
      'an amplitude of 0',
      {
        base: 10000,
        rotaryDim: 4,
        scaling: { type: 'yarn', factor: 8, originalContextLength: 99, attentionFactor: 0 },
      },
    ],
  ])('rejects %s', (_name, options) => {
    expect(() => ropeFrequencies(options)).toThrow(ArgumentError);
  });
});
