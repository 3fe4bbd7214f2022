import type { StoredTensor } from '@winnow/bytes';
import { ArgumentError, createRng, decode, encode, FormatError, sizeOf, type DType, type Shape } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import { quantizedDType, quantizeTypes, quantizeWeights } from './quantize.js';
import { reencodedView } from './reencoded-view.js';
import { collectWeights } from './weights.js';

function encoded(dtype: DType, values: Float32Array): Uint8Array {
  const bytes = new Uint8Array(sizeOf(dtype, values.length));
  encode(dtype, values, bytes);
  return bytes;
}

/** The values encoded in one piece. */
function converted(from: DType, bytes: Uint8Array, to: DType, numValues: number): Uint8Array {
  const values = new Float32Array(numValues);
  decode(from, bytes, values);
  return encoded(to, values);
}

/** Counts the bytes read. */
function storedTensor(name: string, dtype: DType, shape: Shape, seed = 1): StoredTensor & { largestRead: number } {
  const rng = createRng(seed);
  const length = shape.reduce((product, dim) => product * dim, 1);
  const bytes = encoded(
    dtype,
    Float32Array.from({ length }, () => rng.nextGaussian()),
  );
  return {
    name,
    dtype,
    shape,
    sizeBytes: bytes.length,
    largestRead: 0,
    async read(target, { byteOffset = 0 } = {}) {
      this.largestRead = Math.max(this.largestRead, target.length);
      target.set(bytes.subarray(byteOffset, byteOffset + target.length));
    },
  };
}

async function bytesOf(stored: StoredTensor): Promise<Uint8Array> {
  const bytes = new Uint8Array(stored.sizeBytes);
  await stored.read(bytes);
  return bytes;
}

describe('reencodedView', () => {
  for (const from of ['f32', 'f16', 'bf16', 'f64', 'q8_0', 'q4_K'] as const) {
    for (const to of quantizeTypes) {
      test(`${from} as ${to}: pieces of any size equal the whole`, async () => {
        const stored = storedTensor('w', from, [3, 512]);
        const view = reencodedView(stored, to);
        const whole = converted(from, await bytesOf(stored), to, 3 * 512);
        const expected = from === to ? await bytesOf(stored) : whole;
        expect(await bytesOf(view)).toEqual(expected);
        // starts and ends within blocks; single bytes encode a block each, so once per encoder
        for (const piece of from === 'f32' ? [1, 7, 33, 145, 1000] : [33, 1000]) {
          const joined = new Uint8Array(view.sizeBytes);
          for (let at = 0; at < joined.length; at += piece) {
            await view.read(joined.subarray(at, at + piece), { byteOffset: at });
          }
          expect(joined).toEqual(expected);
        }
      });
    }
  }

  test('a large tensor is decoded in tiles', async () => {
    const stored = storedTensor('w', 'f16', [1100, 1024]);
    const view = reencodedView(stored, 'q8_0');
    expect(await bytesOf(view)).toEqual(converted('f16', await bytesOf({ ...stored }), 'q8_0', 1100 * 1024));
    expect(stored.largestRead).toBe(2 * 2 ** 20);
  });

  test('values that blocks cannot represent are rejected', async () => {
    const stored = { ...storedTensor('w', 'f32', [1, 32]) };
    const read: StoredTensor['read'] = async (target) => void target.fill(0xff);
    await expect(bytesOf(reencodedView({ ...stored, read }, 'q8_0'))).rejects.toThrow(
      new FormatError({ source: 'w', field: 'w', message: 'expected finite weights, got NaN at index 0' }),
    );
  });

  test('rows that are not whole blocks are rejected', () => {
    expect(() => reencodedView(storedTensor('w', 'f32', [4, 48]), 'q4_0')).toThrow(
      new ArgumentError({ argument: 'w as q4_0', expected: 'rows of a multiple of 32 values', actual: '48' }),
    );
  });
});

describe('the recipe q4_K_M', () => {
  const typeOf = (name: string, shape: Shape = [256, 256], numLayers = 16): DType =>
    quantizedDType({ name, shape, dtype: 'f16' }, { dtype: 'q4_K_M', isTied: false, numLayers }).dtype;

  test('stores the embedding table, the output matrix and some matrices of layers finer', () => {
    expect(['token_embd.weight', 'output.weight', 'blk.0.attn_q.weight'].map((name) => typeOf(name))).toEqual([
      'q6_K',
      'q6_K',
      'q4_K',
    ]);
    const finer = (name: string): number[] =>
      Array.from({ length: 16 }, (_, layer) => layer).filter(
        (layer) => typeOf(`blk.${layer}.${name}.weight`) === 'q6_K',
      );
    for (const name of ['attn_v', 'ffn_down', 'ffn_down_exps']) {
      expect(finer(name)).toEqual([0, 1, 4, 7, 10, 13, 14, 15]);
    }
    expect(finer('ffn_up')).toEqual([]);
  });
});

describe('quantizedDType', () => {
  const typeOf = (name: string, shape: Shape, dtype: DType, isTied = false, own: DType = 'f32'): DType =>
    quantizedDType({ name, shape, dtype: own }, { dtype, isTied, numLayers: 1 }).dtype;

  test('matrices get the dtype, vectors and sensitive matrices keep theirs', () => {
    expect(typeOf('blk.0.attn_q.weight', [256, 256], 'q4_K')).toBe('q4_K');
    expect(typeOf('blk.0.ffn_down_exps.weight', [4, 64, 256], 'q4_K')).toBe('q4_K');
    for (const name of [
      'attn_q_norm',
      'ffn_gate_inp',
      'ssm_conv1d',
      'shortconv.conv',
      'ssm_alpha',
      'ssm_beta',
      'ssm_ba',
    ]) {
      expect(typeOf(`blk.0.${name}.weight`, [256, 256], 'q4_K')).toBe('f32');
    }
    expect(typeOf('position_embd.weight', [256, 256], 'q8_0')).toBe('f32');
    expect(typeOf('output_norm.weight', [256], 'q8_0')).toBe('f32');
  });

  test('the output matrix keeps more bits', () => {
    expect(typeOf('output.weight', [300, 256], 'q4_0')).toBe('q6_K');
    expect(typeOf('output.weight', [300, 64], 'q4_0')).toBe('q8_0');
    expect(typeOf('output.weight', [300, 64], 'q8_0')).toBe('q8_0');
    expect(typeOf('token_embd.weight', [300, 256], 'q4_0')).toBe('q4_0');
    expect(typeOf('token_embd.weight', [300, 256], 'q4_0', true)).toBe('q6_K');
  });
});

describe('quantizeWeights', () => {
  test('reports which matrices keep their dtype, and why', () => {
    const tensors = [
      storedTensor('blk.0.attn_q.weight', 'f32', [4, 64]),
      storedTensor('blk.0.ffn_up.weight', 'f32', [4, 48]),
      storedTensor('blk.0.ffn_down.weight', 'q4_0', [4, 64]),
      storedTensor('blk.0.attn_norm.weight', 'f32', [64]),
    ];
    const store = { name: 'file', tensors: new Map(tensors.map((t) => [t.name, t])), close: async () => undefined };
    const requests = tensors.map(({ name, shape }) => ({ name, storedName: name, shape }));
    const weights = collectWeights(store, requests);
    expect(quantizeWeights(weights, { dtype: 'q8_0', isTied: false, numLayers: 1 })).toEqual([
      { name: 'blk.0.ffn_up.weight', dtype: 'f32', reason: 'rows of 48 values are not whole blocks of 32' },
      { name: 'blk.0.ffn_down.weight', dtype: 'q4_0', reason: 'already quantized as q4_0' },
    ]);
    expect([...weights.values()].map(({ dtype }) => dtype)).toEqual(['q8_0', 'f32', 'q4_0', 'f32']);
    expect(weights.get('blk.0.attn_q.weight')?.sizeBytes).toBe(4 * 68);

    const again = collectWeights(store, requests);
    expect(quantizeWeights(again, { dtype: 'q8_0', isTied: false, numLayers: 1, allowRequantize: true })).toHaveLength(
      1,
    );
    expect(again.get('blk.0.ffn_down.weight')?.dtype).toBe('q8_0');
  });

  test('dtypes without an encoder are rejected', () => {
    expect(() => quantizeWeights(new Map(), { dtype: 'iq2_s', isTied: false, numLayers: 1 })).toThrow(
      /^quantize: expected f32 \| f16 \| .*q6_K.*, got iq2_s$/,
    );
  });
});
