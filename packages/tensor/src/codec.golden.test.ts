import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { decode } from './codec.js';
import { dtypeInfo, isDType, type DType } from './dtype.js';

const folder = new URL('./__fixtures__/quant/', import.meta.url);

interface Golden {
  readonly dtype: DType;
  readonly typeId: number;
  readonly input: Float32Array;
  readonly bytes: Uint8Array;
  readonly values: Float32Array;
  readonly randomBytes: Uint8Array;
  readonly randomValues: Float32Array;
}

function bytesOf(base64: string): Uint8Array {
  return new Uint8Array(Buffer.from(base64, 'base64'));
}

function floatsOf(base64: string): Float32Array {
  return new Float32Array(bytesOf(base64).buffer);
}

const goldens: Golden[] = readdirSync(folder)
  .filter((name) => name.endsWith('.json'))
  .map((name) => {
    const json = JSON.parse(readFileSync(new URL(name, folder), 'utf8'));
    const dtype = (json.type as string).toLowerCase().replace('_k', '_K');
    if (!isDType(dtype)) throw new Error(`unknown type ${json.type}`);
    return {
      dtype,
      typeId: json.type_id,
      input: floatsOf(json.input),
      bytes: bytesOf(json.bytes),
      values: floatsOf(json.values),
      randomBytes: bytesOf(json.random_bytes),
      randomValues: floatsOf(json.random_values),
    };
  });

/** Index of the first value whose bits differ (so that -0 is not 0), or -1. */
function firstDifference(actual: Float32Array, expected: Float32Array): number {
  const a = new Uint32Array(actual.buffer, actual.byteOffset, actual.length);
  const b = new Uint32Array(expected.buffer, expected.byteOffset, expected.length);
  return a.length === b.length ? a.findIndex((bits, index) => bits !== b[index]) : 0;
}

test('all 24 formats of llama.cpp have a golden here', () => {
  expect(goldens.length).toBe(24);
});

describe.each(goldens)('$dtype', (golden) => {
  const { dtype } = golden;

  test('has the type number of the golden', () => {
    expect(dtypeInfo(dtype).ggmlType).toBe(golden.typeId);
  });

  test('decodes the blocks that llama.cpp made, bit for bit', () => {
    const out = new Float32Array(golden.values.length);
    decode(dtype, golden.bytes, out);
    expect(firstDifference(out, golden.values)).toBe(-1);
  });

  test('decodes random blocks, bit for bit, at an odd byte offset and between guards', () => {
    const shifted = new Uint8Array(golden.randomBytes.length + 3);
    shifted.set(golden.randomBytes, 3);
    const numValues = golden.randomValues.length;
    const out = new Float32Array(numValues + 10).fill(12345);
    decode(dtype, shifted, out, { byteOffset: 3, outOffset: 5, numValues });
    expect(firstDifference(out.subarray(5, 5 + numValues), golden.randomValues)).toBe(-1);
    expect([...out.subarray(0, 5), ...out.subarray(5 + numValues)]).toEqual(Array.from({ length: 10 }, () => 12345));
  });
});
