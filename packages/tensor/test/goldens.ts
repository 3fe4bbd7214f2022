/** The golden blocks of llama.cpp, see src/__fixtures__/quant/ORIGIN.md. */
import { readdirSync, readFileSync } from 'node:fs';
import { isDType, type DType } from '../src/dtype.js';

const folder = new URL('../src/__fixtures__/quant/', import.meta.url);

export interface Golden {
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

export const goldens: readonly Golden[] = readdirSync(folder)
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
