/** RoPE settings in both formats. */
import type { GgufValueInput } from '@winnow/gguf';
import type { RopeConfig } from '@winnow/models';
import { FormatError } from '@winnow/tensor';

export type GgufPairs = [string, GgufValueInput][];

export const f32 = (value: number): GgufValueInput => ({ type: 'float32', value });
export const u32 = (value: number): GgufValueInput => ({ type: 'uint32', value });

/** Keys without the architecture prefix, and the factor tensors. */
export function ropeToGguf(rope: RopeConfig): {
  readonly pairs: GgufPairs;
  readonly tensors: ReadonlyMap<string, Float32Array>;
} {
  const { base, rotaryDim, scaling, beyond, dynamic } = rope;
  if (dynamic !== undefined) {
    throw new FormatError({ source: 'rope', field: 'scaling', message: 'GGUF cannot represent dynamic NTK scaling' });
  }
  const pairs: GgufPairs = [
    ['rope.freq_base', f32(base)],
    ['rope.dimension_count', u32(rotaryDim)],
  ];
  const tensors = new Map<string, Float32Array>();
  if (scaling === undefined) return { pairs, tensors };
  switch (scaling.type) {
    case 'linear':
      pairs.push(['rope.scaling.type', 'linear'], ['rope.scaling.factor', f32(scaling.factor)]);
      break;
    case 'yarn': {
      const { factor, originalContextLength, betaFast = 32, betaSlow = 1 } = scaling;
      const usual = factor <= 1 ? 1 : 1 + 0.1 * Math.log(factor);
      const own = (scaling.attentionFactor ?? usual) / usual;
      pairs.push(
        ['rope.scaling.type', 'yarn'],
        ['rope.scaling.factor', f32(factor)],
        ['rope.scaling.original_context_length', u32(originalContextLength)],
      );
      if (Math.abs(own - 1) > 1e-7) pairs.push(['rope.scaling.attn_factor', f32(own)]);
      if (betaFast !== 32) pairs.push(['rope.scaling.yarn_beta_fast', f32(betaFast)]);
      if (betaSlow !== 1) pairs.push(['rope.scaling.yarn_beta_slow', f32(betaSlow)]);
      break;
    }
    case 'llama3':
      tensors.set('rope_freqs.weight', llama3Factors(rope, scaling));
      break;
    case 'factors':
      if (beyond?.scaling.type === 'factors') {
        tensors.set('rope_factors_short.weight', Float32Array.from(scaling.factors));
        tensors.set('rope_factors_long.weight', Float32Array.from(beyond.scaling.factors));
        pairs.push(
          ['rope.scaling.original_context_length', u32(beyond.contextLength)],
          ['rope.scaling.attn_factor', f32(scaling.attentionFactor ?? 1)],
        );
      } else tensors.set('rope_freqs.weight', Float32Array.from(scaling.factors));
      break;
    case 'ntk':
      throw new FormatError({ source: 'rope', field: 'scaling', message: 'GGUF cannot represent NTK scaling' });
  }
  return { pairs, tensors };
}

interface Llama3Scaling {
  readonly factor: number;
  readonly lowFreqFactor: number;
  readonly highFreqFactor: number;
  readonly originalContextLength: number;
}

/** The divisor of the frequency of each pair. */
function llama3Factors({ base, rotaryDim }: RopeConfig, scaling: Llama3Scaling): Float32Array {
  const { factor, lowFreqFactor, highFreqFactor, originalContextLength } = scaling;
  return Float32Array.from({ length: rotaryDim / 2 }, (_, pair) => {
    const wavelength = 2 * Math.PI * base ** ((2 * pair) / rotaryDim);
    const ratio = (originalContextLength / wavelength - lowFreqFactor) / (highFreqFactor - lowFreqFactor);
    const keep = Math.min(1, Math.max(0, ratio));
    return 1 / ((1 - keep) / factor + keep);
  });
}

/**
 * `rope_scaling` of config.json, `undefined` without scaling. @throws {FormatError} for factors that no scaling rule
 * yields
 */
export function ropeToHub(rope: RopeConfig): Record<string, unknown> | undefined {
  const { scaling, beyond, dynamic } = rope;
  if (dynamic !== undefined) return { rope_type: 'dynamic', type: 'dynamic', factor: dynamic.factor };
  if (scaling === undefined) return undefined;
  switch (scaling.type) {
    case 'linear':
      return { rope_type: 'linear', type: 'linear', factor: scaling.factor };
    case 'yarn':
      return {
        rope_type: 'yarn',
        factor: scaling.factor,
        original_max_position_embeddings: scaling.originalContextLength,
        beta_fast: scaling.betaFast ?? 32,
        beta_slow: scaling.betaSlow ?? 1,
        ...(scaling.truncate === false ? { truncate: false } : {}),
        ...(scaling.attentionFactor === undefined ? {} : { attention_factor: scaling.attentionFactor }),
      };
    case 'factors':
      if (beyond?.scaling.type !== 'factors') return llama3OfFactors(rope, Float32Array.from(scaling.factors));
      return {
        rope_type: 'longrope',
        type: 'longrope',
        short_factor: Array.from(scaling.factors),
        long_factor: Array.from(beyond.scaling.factors),
        attention_factor: scaling.attentionFactor ?? 1,
        original_max_position_embeddings: beyond.contextLength,
      };
    case 'llama3':
      return {
        rope_type: 'llama3',
        factor: scaling.factor,
        low_freq_factor: scaling.lowFreqFactor,
        high_freq_factor: scaling.highFreqFactor,
        original_max_position_embeddings: scaling.originalContextLength,
      };
    case 'ntk':
      throw new FormatError({ source: 'rope', field: 'scaling', message: 'config.json cannot represent NTK scaling' });
  }
}

/** Recovers the settings that yield these factors, with the limits 1 and 4 of Llama 3 models, or the single limit 1 of Llama 4. */
function llama3OfFactors(rope: RopeConfig, factors: Float32Array): Record<string, unknown> {
  const factor = factors.reduce((most, value) => Math.max(most, value), 1);
  const wavelengthOf = (pair: number): number => 2 * Math.PI * rope.base ** ((2 * pair) / rope.rotaryDim);
  const first = factors.findIndex((value) => value > 1.0001);
  const value = factors[first] ?? 1;
  const isBetween = value < factor * 0.9999;
  const [lowFreqFactor, highFreqFactor] = [1, isBetween ? 4 : 1];
  // any pair in between yields the original context length; without one it is anywhere between the pairs at the limit
  const keep = (1 / value - 1 / factor) / (1 - 1 / factor);
  const length = isBetween
    ? wavelengthOf(first) * (lowFreqFactor + keep * (highFreqFactor - lowFreqFactor))
    : Math.sqrt(wavelengthOf(first - 1) * wavelengthOf(first));
  const settings = { factor, lowFreqFactor, highFreqFactor, originalContextLength: Math.round(length) };
  if (first !== -1 && settings.originalContextLength > 0) {
    const again = llama3Factors(rope, settings);
    if (again.every((own, pair) => Math.abs(own / (factors[pair] as number) - 1) < 1e-5)) {
      return ropeToHub({ ...rope, scaling: { type: 'llama3', ...settings } }) as Record<string, unknown>;
    }
  }
  const message = 'the factors follow no rule that config.json can represent';
  throw new FormatError({ source: 'rope', field: 'rope_freqs.weight', message });
}
