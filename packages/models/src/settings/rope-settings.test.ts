import { FormatError } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import { Fields } from '../file/fields.js';
import { ropeFromGguf, ropeFromHub } from './rope-settings.js';

const gguf = (settings: Record<string, unknown>) =>
  ropeFromGguf(Fields.ofJson('m.gguf', settings), 'llama', 16, 'neighbors', undefined);
const hub = (settings: Record<string, unknown>) => ropeFromHub(Fields.ofJson('config.json', settings), 16);

describe('GGUF', () => {
  test('defaults: base 10000, the whole head, no scaling', () => {
    expect(gguf({})).toEqual({ layout: 'neighbors', base: 10000, rotaryDim: 16 });
  });

  test('a factor alone means linear scaling', () => {
    expect(gguf({ 'llama.rope.scaling.factor': 4 }).scaling).toEqual({ type: 'linear', factor: 4 });
    expect(gguf({ 'llama.rope.scale_linear': 2 }).scaling).toEqual({ type: 'linear', factor: 2 });
    expect(gguf({ 'llama.rope.scaling.type': 'none', 'llama.rope.scaling.factor': 4 }).scaling).toBeUndefined();
  });

  test('yarn scales by 1 + 0.1 ln(factor), times attn_factor', () => {
    const settings = {
      'llama.rope.scaling.type': 'yarn',
      'llama.rope.scaling.factor': 4,
      'llama.rope.scaling.original_context_length': 64,
      'llama.rope.scaling.attn_factor': 0.5,
      'llama.context_length': 256,
    };
    expect(gguf(settings).scaling).toEqual({
      type: 'yarn',
      factor: 4,
      originalContextLength: 64,
      betaFast: 32,
      betaSlow: 1,
      attentionFactor: 0.5 * (1 + 0.1 * Math.log(4)),
    });
  });

  test('factors of the file override the settings', () => {
    const factors = Float32Array.of(1, 2, 3, 4, 5, 6, 7, 8);
    const fields = Fields.ofJson('m.gguf', { 'llama.rope.scaling.factor': 4 });
    expect(ropeFromGguf(fields, 'llama', 16, 'halves', factors).scaling).toEqual({ type: 'factors', factors });
  });

  test.each([
    [{ 'llama.rope.scaling.type': 'longrope' }, /rope\.scaling\.type: expected none, linear, yarn, got "longrope"/],
    [
      { 'llama.rope.dimension_count': 18 },
      /expected an even number of rotated dimensions up to the head size 16, got 18/,
    ],
    [{ 'llama.rope.dimension_count': 7 }, /got 7/],
    [{ 'llama.rope.freq_base': 'x' }, /expected a finite number, got "x"/],
  ])('rejects %o', (settings, message) => {
    expect(() => gguf(settings)).toThrow(message);
    expect(() => gguf(settings)).toThrow(FormatError);
  });
});

describe('config.json', () => {
  test('older and newer keys are equivalent', () => {
    const scaling = { factor: 8, low_freq_factor: 1, high_freq_factor: 4, original_max_position_embeddings: 64 };
    const older = hub({ rope_theta: 5e5, rope_scaling: { type: 'llama3', ...scaling } });
    const newer = hub({ rope_parameters: { rope_theta: 5e5, rope_type: 'llama3', ...scaling } });
    expect(older).toEqual(newer);
    expect(older.scaling).toEqual({
      type: 'llama3',
      factor: 8,
      lowFreqFactor: 1,
      highFreqFactor: 4,
      originalContextLength: 64,
    });
  });

  test('null scaling, partial rotation', () => {
    expect(hub({ rope_scaling: null, partial_rotary_factor: 0.25 })).toEqual({
      layout: 'halves',
      base: 10000,
      rotaryDim: 4,
    });
  });

  test('yarn: factor from the lengths, amplitude from mscale', () => {
    const yarn = { rope_type: 'yarn', original_max_position_embeddings: 64 };
    expect(hub({ max_position_embeddings: 256, rope_scaling: yarn }).scaling).toMatchObject({
      factor: 4,
      attentionFactor: 1 + 0.1 * Math.log(4),
    });
    const scaled = { ...yarn, factor: 4, mscale: 2, mscale_all_dim: 1 };
    expect(hub({ rope_scaling: scaled }).scaling).toMatchObject({
      attentionFactor: (1 + 0.2 * Math.log(4)) / (1 + 0.1 * Math.log(4)),
    });
  });

  test('an unknown type is rejected with a list of the known ones', () => {
    expect(() => hub({ rope_scaling: { rope_type: 'su' } })).toThrow(
      /expected default, linear, dynamic, yarn, llama3, got "su"/,
    );
  });
});
