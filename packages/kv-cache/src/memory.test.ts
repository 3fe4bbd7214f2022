/**
 * Memory sizes of a model with 6 attention layers, 2 KV heads of 256, and a state of 16 x 128 x 128 per layer.
 */
import { ShapeError, type DType } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { kvBytesPerToken, kvCacheBytes, kvPageBytes, recurrentStateBytes } from './index.js';

const sizes = { numKvHeads: 2, headDim: 256 };

describe('memory sizes', () => {
  it('4 KiB per layer and position in f32', () => {
    expect(kvBytesPerToken(sizes)).toBe(4096);
    expect(kvPageBytes(sizes, 64)).toBe(64 * 4096);
  });

  // with 1 GB as a million KiB: 4 KiB x 6 x 200,000 = 4.8 million KiB
  const figures: [DType, string][] = [
    ['f32', '4.80'],
    ['f16', '2.40'],
    ['q8_0', '1.28'],
    ['q4_0', '0.68'],
  ];
  it.each(figures)('6 layers at 200K in %s: %s GB', (dtype, gigabytes) => {
    const perToken = 6 * kvBytesPerToken({ ...sizes, dtype });
    expect((Math.round((perToken * 200_000) / 1024 / 1e4) / 100).toFixed(2)).toBe(gigabytes);
  });

  it('1 MiB per layer of recurrent state', () => {
    expect(recurrentStateBytes(16, 128, 128)).toBe(1024 * 1024);
  });

  it('counts whole blocks and the position of each slot', () => {
    expect(kvCacheBytes({ ...sizes, numLayers: 6, numTokens: 65, blockSize: 64 })).toBe(128 * (6 * 4096 + 4));
    const mistral = { numLayers: 32, numKvHeads: 8, headDim: 128, dtype: 'f16' } as const;
    expect(kvCacheBytes({ ...mistral, numTokens: 8192, blockSize: 64 })).toBe(2 ** 30 + 4 * 8192);
  });

  it('adds keys and values of different dtypes, and rejects heads that are not whole blocks', () => {
    expect(kvBytesPerToken({ numKvHeads: 1, headDim: 64, valueDim: 32, dtype: { keys: 'q8_0', values: 'q4_0' } })).toBe(
      2 * 34 + 18,
    );
    expect(() => kvBytesPerToken({ numKvHeads: 1, headDim: 40, dtype: 'q8_0' })).toThrow(ShapeError);
  });
});
