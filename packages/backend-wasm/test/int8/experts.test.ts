/** expert-matmul with int8 activations against float64; the weights are interleaved per expert. */
import { ProgramBuilder, type BufferHandle } from '@winnow/ops';
import { createRng, type DType } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import {
  borrowBackend,
  encodedOnce,
  expectSameBits,
  expectWithin,
  nativeVariants,
  shapesFor,
  stepsOf,
  variants,
  type Bounds,
} from './setup.js';

const unit = 2 ** -24;
const repacked: readonly DType[] = ['q8_0', 'q4_0', 'q4_K', 'q5_K', 'q6_K'];
const shapes = [
  { numTokens: 1, numExperts: 8, numChoices: 2, numInputs: 256, numOutputs: 36 },
  { numTokens: 9, numExperts: 4, numChoices: 3, numInputs: 768, numOutputs: 44 },
  { numTokens: 70, numExperts: 3, numChoices: 2, numInputs: 256, numOutputs: 8 },
  { numTokens: 5, numExperts: 2, numChoices: 1, numInputs: 256, numOutputs: 6 }, // rows that are not whole interleave groups
];

function gaussian(seed: number, length: number): Float32Array {
  const rng = createRng(seed);
  return Float32Array.from({ length }, () => rng.nextGaussian());
}

const bytesOf = (values: Float32Array | Int32Array): Uint8Array => new Uint8Array(values.buffer);
const results = new Map<string, Float32Array>();

type Options = (typeof variants)[keyof typeof variants];
type Shape = (typeof shapes)[number];

interface Contents {
  readonly x: Float32Array;
  readonly ids: Int32Array;
  readonly values: Float32Array;
}

function boundsOf({ x, ids, values }: Contents, { numChoices, numInputs, numOutputs }: Shape): Bounds {
  const steps = stepsOf(x);
  const [sums, bounds] = [new Float64Array(ids.length * numOutputs), new Float64Array(ids.length * numOutputs)];
  for (let at = 0; at < sums.length; at++) {
    const [pair, o] = [Math.floor(at / numOutputs), at % numOutputs];
    const source = Math.floor(pair / numChoices) * numInputs;
    const row = ((ids[pair] as number) * numOutputs + o) * numInputs;
    let sum = 0;
    let bound = 0;
    for (let i = 0; i < numInputs; i++) {
      const [a, w, d] = [x[source + i] as number, values[row + i] as number, steps[(source + i) >> 5] as number];
      sum += a * w;
      // as for matmul: half a quantization step, and the roundings of the sums
      bound += Math.abs(w) * d * 0.5 * (1 + 1e-5) + (numInputs / 16 + 8) * unit * (Math.abs(a) + d) * (Math.abs(w) + 8);
    }
    [sums[at], bounds[at]] = [sum, bound];
  }
  return { values: sums, bounds };
}

async function checkShape(options: Options, dtype: DType, shape: Shape): Promise<void> {
  const { numTokens, numExperts, numChoices, numInputs, numOutputs } = shape;
  const backend = await borrowBackend(options);
  const rng = createRng(7);
  const x = gaussian(1, numTokens * numInputs);
  const ids = Int32Array.from({ length: numTokens * numChoices }, (_, pair) => {
    // expert 0 gets many tokens
    return pair % numChoices === 0 ? 0 : 1 + ((rng.nextInt(64) + pair) % (numExperts - 1));
  });
  const numValues = numExperts * numOutputs * numInputs;
  const { weight, values } = encodedOnce(`experts ${dtype} ${numValues}`, dtype, () => gaussian(3, numValues));
  const b = new ProgramBuilder({});
  const input = b.external('x', 'weights', 'f32', [numTokens, 1, numInputs]);
  const chosen = b.external('ids', 'weights', 'i32', [numTokens, numChoices]);
  const weights = b.external('weight', 'weights', dtype, [numExperts, numOutputs, numInputs]);
  b.output('y', b.activation('expert-matmul', { x: input, ids: chosen, weight: weights }));
  // the same activations again: their codes are reused
  b.output('z', b.activation('expert-matmul', { x: input, ids: chosen, weight: weights }));
  const buffers = new Map<string, BufferHandle>();
  for (const [name, bytes] of Object.entries({ x: bytesOf(x), ids: bytesOf(ids), weight })) {
    const handle = backend.allocate({ sizeBytes: bytes.length, usage: 'weights', label: name });
    await backend.write(handle, 0, bytes);
    buffers.set(name, handle);
  }
  const executable = await backend.prepare(b.build(), { buffers, onUnsupported: 'error' });
  const before = backend.numNativeRecords;
  await executable.run(new Int32Array(0));
  expect(backend.numNativeRecords - before).toBe(options.native !== undefined && numOutputs % 4 === 0 ? 2 : 0);
  const y = new Float32Array(numTokens * numChoices * numOutputs);
  await executable.read('y', y);
  const z = new Float32Array(y.length);
  await executable.read('z', z);
  expectSameBits(z, y);
  expectWithin(y, `experts ${dtype} ${JSON.stringify(shape)}`, () => boundsOf({ x, ids, values }, shape));
  const bytes = new Uint8Array(weight.length);
  await backend.read(buffers.get('weight') as BufferHandle, 0, bytes);
  expect(Buffer.compare(bytes, weight)).toBe(0);
  // the number of threads changes no bit
  const key = `${dtype} ${numTokens} ${numInputs} ${String(options.relaxedSimd)} ${String(options.native)}`;
  expectSameBits(y, results.get(key) ?? y);
  results.set(key, y);
  await backend.dispose();
}

describe.each(Object.entries({ ...variants, ...nativeVariants }))('%s', (name, options) => {
  describe.each(repacked)('%s', (dtype) => {
    test.each(shapesFor(shapes, name, repacked.indexOf(dtype)))(
      '$numTokens x $numInputs -> $numChoices of $numExperts x $numOutputs',
      (shape) => checkShape(options, dtype, shape),
    );
  });
});
