/** Golden files from the shared data folder if it exists, otherwise the committed ones. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createReferenceBackend, type Backend } from '@winnow/ops';
import { sharedDataPath } from '@winnow/test-utils';

const committed = fileURLToPath(new URL('../fixtures/', import.meta.url));

/** The golden models of each architecture; `docs/models.md` is written from the same file. */
export const goldenNames: Readonly<Record<string, readonly string[]>> = readJson(
  fileURLToPath(new URL('../golden-names.json', import.meta.url)),
);

/** The golden encoders of each architecture. */
export const encoderNames: Readonly<Record<string, readonly string[]>> = readJson(
  fileURLToPath(new URL('../encoder-golden-names.json', import.meta.url)),
);

/** The golden rerankers of each architecture. */
export const rerankerNames: Readonly<Record<string, readonly string[]>> = readJson(
  fileURLToPath(new URL('../reranker-golden-names.json', import.meta.url)),
);

/** The golden models of each architecture whose only outputs are multi-vectors. */
export const multiVectorNames: Readonly<Record<string, readonly string[]>> = readJson(
  fileURLToPath(new URL('../multi-vector-golden-names.json', import.meta.url)),
);

/** The golden models of each architecture that takes images. */
export const imageNames: Readonly<Record<string, readonly string[]>> = readJson(
  fileURLToPath(new URL('../image-golden-names.json', import.meta.url)),
);

/** Path of `arch/<name>/<file>`, or `undefined` when it is in neither place. */
export function archPath(name: string, file: string): string | undefined {
  const path = join(committed, 'arch', name, file);
  return sharedDataPath('data', 'goldens', 'arch', name, file) ?? (existsSync(path) ? path : undefined);
}

export function readJson<T>(path: string): T {
  return JSON.parse(readFileSync(path, 'utf8')) as T;
}

/** Little-endian f32 values of a base64 text. */
export function decodeFloats(base64: string): Float32Array {
  const bytes = Uint8Array.from(Buffer.from(base64, 'base64'));
  return new Float32Array(bytes.buffer);
}

/** Largest absolute difference; NaN when a value is NaN. */
export function maxDifference(actual: Float32Array, expected: Float32Array): number {
  if (actual.length !== expected.length) return NaN;
  let max = 0;
  for (let i = 0; i < actual.length; i++) {
    const difference = Math.abs((actual[i] as number) - (expected[i] as number));
    if (!(difference <= max)) max = difference;
  }
  return max;
}

/** The backends that goldens run on: the engine's default, and the reference. */
export const goldenBackends: Readonly<Record<string, () => { readonly backend?: Backend }>> = {
  'default backend': () => ({}),
  'reference backend': () => ({ backend: createReferenceBackend() }),
};
