/** In the page, and in Node for comparison: GEMV and GEMM with int8 activations and weights repacked at load. */
import { createWasmBackend, type CreateWasmBackendOptions } from '@winnow/backend-wasm';
import { ProgramBuilder, type Backend, type BufferHandle } from '@winnow/ops';
import { createRng, encode, sizeOf, type DType } from '@winnow/tensor';

const dtypes: readonly DType[] = ['q8_0', 'q4_0', 'q4_K', 'q5_K', 'q6_K'];
/** Tokens, inputs, outputs: one token and several, whole tiles and remainders. */
const sizes = [
  [1, 256, 4],
  [1, 1280, 71],
  [4, 768, 34],
  [13, 1024, 103],
  [70, 256, 40],
] as const;

function gaussian(seed: number, length: number): Float32Array {
  const rng = createRng(seed);
  return Float32Array.from({ length }, () => rng.nextGaussian());
}

async function allocate(backend: Backend, label: string, bytes: Uint8Array): Promise<BufferHandle> {
  const handle = backend.allocate({ sizeBytes: bytes.length, usage: 'weights', label });
  await backend.write(handle, 0, bytes);
  return handle;
}

const encoded = new Map<string, Uint8Array>();

/** Encoded once, since encoding is slow. */
function encodedWeights(dtype: DType, numInputs: number, numOutputs: number): Uint8Array {
  const key = `${dtype} ${numInputs} ${numOutputs}`;
  const known = encoded.get(key);
  if (known !== undefined) return known;
  const weights = new Uint8Array(sizeOf(dtype, numOutputs * numInputs));
  encode(dtype, gaussian(numInputs + numOutputs, numOutputs * numInputs), weights);
  encoded.set(key, weights);
  return weights;
}

async function multiply(
  backend: Backend,
  dtype: DType,
  [numTokens, numInputs, numOutputs]: (typeof sizes)[number],
): Promise<Float32Array> {
  const b = new ProgramBuilder({});
  const x = b.external('x', 'weights', 'f32', [numTokens, numInputs]);
  const weight = b.external('weight', 'weights', dtype, [numOutputs, numInputs]);
  b.output('y', b.activation('matmul', { x, weight }));
  const weights = encodedWeights(dtype, numInputs, numOutputs);
  const buffers = new Map([
    ['x', await allocate(backend, 'x', new Uint8Array(gaussian(numTokens, numTokens * numInputs).buffer))],
    ['weight', await allocate(backend, 'weight', weights)],
  ]);
  const executable = await backend.prepare(b.build(), { buffers, onUnsupported: 'error' });
  await executable.run(new Int32Array(0));
  const y = new Float32Array(numTokens * numOutputs);
  await executable.read('y', y);
  await executable.dispose();
  for (const buffer of buffers.values()) backend.free(buffer);
  return y;
}

export const api = {
  /** One line per product: its sum of squares and a hash of its bits. */
  async products(options: CreateWasmBackendOptions): Promise<readonly string[]> {
    const backend = await createWasmBackend({ ...options, activations: 'int8' });
    const lines: string[] = [];
    for (const dtype of dtypes) {
      for (const size of sizes) {
        const y = await multiply(backend, dtype, size);
        const bits = new Int32Array(y.buffer).reduce((hash, word) => Math.imul(hash ^ word, 16777619), 0x811c9dc5);
        lines.push(`${dtype} ${size.join(' x ')}: ${y.reduce((sum, value) => sum + value * value, 0)} ${bits >>> 0}`);
      }
    }
    await backend.dispose();
    return lines;
  },
};

export type Int8Page = typeof api;

Object.assign(globalThis, { api });
