/** Matmul with int8 activations against float64, and the bytes of weights that are interleaved in place. */
import { ProgramBuilder, type BufferHandle } from '@winnow/ops';
import { createRng, decode, sizeOf, type DType } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import {
  borrowBackend,
  encodedOnce,
  expectSameBits,
  nativeVariants,
  shapesFor,
  stepsOf,
  variants,
  type TestBackend,
} from './setup.js';

const repacked: readonly DType[] = ['q8_0', 'q4_0', 'q4_K', 'q5_K', 'q6_K'];
const unit = 2 ** -24;

interface Matrix {
  readonly bytes: Uint8Array;
  readonly values: Float32Array;
}

function gaussian(seed: number, length: number): Float32Array {
  const rng = createRng(seed);
  return Float32Array.from({ length }, () => rng.nextGaussian());
}

function matrix(dtype: DType, numRows: number, numColumns: number): Matrix {
  const { weight, values } = encodedOnce(`${dtype} ${numRows} x ${numColumns}`, dtype, () =>
    gaussian(numRows + numColumns, numRows * numColumns),
  );
  return { bytes: weight, values };
}

async function load(
  backend: TestBackend,
  contents: Readonly<Record<string, Uint8Array>>,
): Promise<Map<string, BufferHandle>> {
  const handles = new Map<string, BufferHandle>();
  for (const [name, bytes] of Object.entries(contents)) {
    const handle = backend.allocate({ sizeBytes: bytes.length, usage: 'weights', label: name });
    await backend.write(handle, 0, bytes);
    handles.set(name, handle);
  }
  return handles;
}

/**
 * Activations have an error of half a step of their block, `d / 2` with `d = max |x| / 127`, plus the rounding of d; sums
 * over blocks and scales are in f32.
 */
function expectProducts(
  y: Float32Array,
  x: Float32Array,
  w: Float32Array,
  numInputs: number,
  bias: Float32Array,
): void {
  const numOutputs = bias.length;
  const steps = stepsOf(x);
  let numOutside = 0;
  for (let at = 0; at < y.length; at++) {
    const [t, o] = [Math.floor(at / numOutputs), at % numOutputs];
    let sum = bias[o] as number;
    let bound = Math.abs(sum) * 2 * unit;
    for (let i = t * numInputs, row = o * numInputs; i < (t + 1) * numInputs; i++, row++) {
      const [a, weight, d] = [x[i] as number, w[row] as number, steps[i >> 5] as number];
      sum += a * weight;
      // x is approximated by code times d; products with the offset and with codes can exceed their difference
      bound += Math.abs(weight) * d * 0.5 * (1 + 1e-5);
      bound += (numInputs / 16 + 8) * unit * (Math.abs(a) + d) * (Math.abs(weight) + 8);
    }
    if (!(Math.abs((y[at] as number) - sum) <= bound)) numOutside++;
  }
  expect(numOutside).toBe(0);
}

const shapes = [
  { numTokens: 1, numInputs: 256, numOutputs: 4 },
  { numTokens: 1, numInputs: 1280, numOutputs: 71 },
  { numTokens: 3, numInputs: 512, numOutputs: 33 },
  { numTokens: 4, numInputs: 768, numOutputs: 34 },
  { numTokens: 13, numInputs: 1024, numOutputs: 103 },
  { numTokens: 300, numInputs: 256, numOutputs: 40 },
];

/** Rows of one repeated byte with scales of 2^-8: the largest codes, including -128 of q8_0. */
function extremes(dtype: DType, numRows: number, numColumns: number): Matrix {
  const bytes = new Uint8Array(sizeOf(dtype, numRows * numColumns));
  const values = new Float32Array(numRows * numColumns);
  const view = new DataView(bytes.buffer);
  const rowBytes = sizeOf(dtype, numColumns);
  const blockBytes = sizeOf(dtype, dtype === 'q8_0' || dtype === 'q4_0' ? 32 : 256);
  for (let row = 0; row < numRows; row++) {
    bytes.fill([0xff, 0x80, 0x7f, 0x00][row % 4] as number, row * rowBytes, (row + 1) * rowBytes);
    for (let at = row * rowBytes; at < (row + 1) * rowBytes; at += blockBytes) {
      view.setUint16(at + (dtype === 'q6_K' ? 208 : 0), 0x1c00, true);
      if (dtype === 'q4_K' || dtype === 'q5_K') view.setUint16(at + 2, 0x1c00, true);
    }
  }
  decode(dtype, bytes, values);
  return { bytes, values };
}

const results = new Map<string, Float32Array>();

type Options = (typeof variants)[keyof typeof variants];

/** Variants of equal keys have equal bits: the number of threads and the dot-product kernel change none. */
const keyOf = ({ native, relaxedSimd }: Options): string => String(native ?? relaxedSimd);
type Shape = (typeof shapes)[number];

async function checkProducts(
  options: Options,
  dtype: DType,
  { numTokens, numInputs, numOutputs }: Shape,
): Promise<void> {
  const backend = await borrowBackend(options);
  const b = new ProgramBuilder({});
  const x = gaussian(1, numTokens * numInputs);
  x.fill(0, 0, 32); // a block of zeros
  const bias = gaussian(2, numOutputs);
  const weight = matrix(dtype, numOutputs, numInputs);
  const other = matrix(dtype, 8, numInputs);
  const input = b.external('x', 'weights', 'f32', [numTokens, numInputs]);
  const inputs = { x: input, bias: b.external('bias', 'weights', 'f32', [numOutputs]) };
  const w = b.external('weight', 'weights', dtype, [numOutputs, numInputs]);
  b.output('y', b.activation('matmul', { ...inputs, weight: w }));
  // the same activations again: their codes are reused
  b.output('z', b.activation('matmul', { x: input, weight: b.external('other', 'weights', dtype, [8, numInputs]) }));
  const program = b.build();
  const handles = await load(backend, {
    x: new Uint8Array(x.buffer),
    bias: new Uint8Array(bias.buffer),
    weight: weight.bytes,
    other: other.bytes,
  });
  const executable = await backend.prepare(program, { buffers: handles, onUnsupported: 'error' });
  const { numNativeRecords } = backend;
  await executable.run(new Int32Array(0));
  expect(backend.numNativeRecords - numNativeRecords).toBe(options.native === undefined ? 0 : 2);
  const y = new Float32Array(numTokens * numOutputs);
  await executable.read('y', y);
  // only the first result of a key is compared with the bounds
  const key = `${dtype} ${numTokens} ${numInputs} ${numOutputs} ${keyOf(options)}`;
  const first = results.get(key);
  if (first === undefined) expectProducts(y, x, weight.values, numInputs, bias);
  expectSameBits(y, first ?? y);
  results.set(key, first ?? y);
  const z = new Float32Array(numTokens * 8);
  await executable.read('z', z);
  const firstOther = results.get(`${key}, other`);
  if (firstOther === undefined) expectProducts(z, x, other.values, numInputs, new Float32Array(8));
  expectSameBits(z, firstOther ?? z);
  results.set(`${key}, other`, z);
  // reads return the written bytes, and the next run repacks them
  const bytes = new Uint8Array(weight.bytes.length);
  await backend.read(handles.get('weight') as BufferHandle, 0, bytes);
  expect(Buffer.compare(bytes, weight.bytes)).toBe(0);
  await executable.run(new Int32Array(0));
  const again = new Float32Array(y.length);
  await executable.read('y', again);
  expectSameBits(again, y);
  await backend.dispose();
}

async function checkLargestCodes(options: Options, dtype: DType, n: number): Promise<void> {
  const backend = await borrowBackend(options);
  const b = new ProgramBuilder({});
  const x = Float32Array.from({ length: n * 512 }, (_, i) => {
    const t = Math.floor(i / 512);
    return t % 3 === 2 ? 1 - 2 * (i % 2) : 1 - 2 * (t % 3);
  });
  const input = b.external('x', 'weights', 'f32', [n, 512]);
  const weights = { before: ['q4_0', 44], y: [dtype, 44], after: ['q8_0', 8], last: ['q4_K', 12] } as const;
  const contents: Record<string, Uint8Array> = { x: new Uint8Array(x.buffer) };
  const matrices = new Map<string, Matrix>();
  for (const [name, [type, numRows]] of Object.entries(weights)) {
    const made = extremes(type, numRows, 512);
    matrices.set(name, made);
    contents[`${name} weight`] = made.bytes;
    const weight = b.external(`${name} weight`, 'weights', type, [numRows, 512]);
    b.output(name, b.activation('matmul', { x: input, weight }));
  }
  const buffers = await load(backend, contents);
  const executable = await backend.prepare(b.build(), { buffers, onUnsupported: 'error' });
  await executable.run(new Int32Array(0));
  for (const [name, [, numRows]] of Object.entries(weights)) {
    const y = new Float32Array(n * numRows);
    await executable.read(name, y);
    const key = `${dtype} ${n} ${name} ${keyOf(options)}`;
    const first = results.get(key);
    if (first === undefined) {
      expectProducts(y, x, (matrices.get(name) as Matrix).values, 512, new Float32Array(numRows));
    }
    expectSameBits(y, first ?? y);
    results.set(key, y);
  }
  await backend.dispose();
}

async function checkSharedTable(options: Options, dtype: DType): Promise<void> {
  const backend = await borrowBackend(options);
  const table = matrix(dtype, 11, 256);
  const tokens = Int32Array.of(0, 3, 7, 8, 9, 10);
  const b = new ProgramBuilder({});
  const weight = b.external('table', 'weights', dtype, [11, 256]);
  const x = b.activation('embedding-lookup', {
    table: weight,
    tokens: b.external('tokens', 'weights', 'i32', [tokens.length]),
  });
  b.output('x', x);
  b.output('y', b.activation('matmul', { x, weight }));
  const buffers = await load(backend, { table: table.bytes, tokens: new Uint8Array(tokens.buffer) });
  const executable = await backend.prepare(b.build(), { buffers });
  await executable.run(new Int32Array(0));
  const found = new Float32Array(tokens.length * 256);
  await executable.read('x', found);
  const rows = [...tokens].flatMap((token) => [...table.values.subarray(token * 256, (token + 1) * 256)]);
  expect(found.map((value) => value + 0)).toEqual(Float32Array.from(rows, (value) => value + 0)); // no -0
  const y = new Float32Array(tokens.length * 11);
  await executable.read('y', y);
  expectProducts(y, found, table.values, 256, new Float32Array(11));
  await backend.dispose();
}

async function checkInfiniteScale(options: Options, dtype: DType): Promise<void> {
  const backend = await borrowBackend(options);
  const good = matrix(dtype, 8, 256);
  const bad = matrix(dtype, 8, 256);
  // the scale of the first block of row 5
  const scaleAt = sizeOf(dtype, 5 * 256) + (dtype === 'q6_K' ? 208 : 0);
  bad.bytes.set([0x00, 0x7c], scaleAt);
  const b = new ProgramBuilder({});
  const x = b.external('x', 'weights', 'f32', [1, 256]);
  for (const name of ['bad', 'good']) {
    b.output(`y.${name}`, b.activation('matmul', { x, weight: b.external(name, 'weights', dtype, [8, 256]) }));
  }
  const xs = gaussian(9, 256);
  const buffers = await load(backend, { x: new Uint8Array(xs.buffer), good: good.bytes, bad: bad.bytes });
  const executable = await backend.prepare(b.build(), { buffers });
  await executable.run(new Int32Array(0));
  const y = new Float32Array(8);
  await executable.read('y.good', y);
  expectProducts(y, xs, good.values, 256, new Float32Array(8));
  await executable.read('y.bad', y);
  expect([...y].map(Number.isFinite)).toEqual([true, true, true, true, true, false, true, true]);
  await backend.dispose();
}

async function checkSmallScales(options: Options, dtype: DType): Promise<void> {
  const backend = await borrowBackend(options);
  const weight = matrix(dtype, 8, 1024);
  // denormal, zero, smallest normal, negative and large scales; super-blocks have a second one
  const scales = [0x0001, 0x8003, 0x03ff, 0x0400, 0x0000, 0x8000, 0x83ff, 0x2bff, 0x2c00, 0xac01, 0x53ff, 0xd3ff];
  const blockBytes = weight.bytes.length / ((8 * 1024) / (dtype === 'q8_0' || dtype === 'q4_0' ? 32 : 256));
  const view = new DataView(weight.bytes.buffer);
  for (let at = 0, i = 0; at < weight.bytes.length; at += blockBytes, i++) {
    view.setUint16(at + (dtype === 'q6_K' ? 208 : 0), scales[i % scales.length] as number, true);
    if (dtype === 'q4_K' || dtype === 'q5_K')
      view.setUint16(at + 2, scales[(i * 5 + 1) % scales.length] as number, true);
  }
  decode(dtype, weight.bytes, weight.values);
  const b = new ProgramBuilder({});
  const x = b.external('x', 'weights', 'f32', [1, 1024]);
  b.output('y', b.activation('matmul', { x, weight: b.external('weight', 'weights', dtype, [8, 1024]) }));
  const xs = gaussian(9, 1024);
  const buffers = await load(backend, { x: new Uint8Array(xs.buffer), weight: weight.bytes });
  const executable = await backend.prepare(b.build(), { buffers });
  await executable.run(new Int32Array(0));
  const y = new Float32Array(8);
  await executable.read('y', y);
  expectProducts(y, xs, weight.values, 1024, new Float32Array(8));
  const bytes = new Uint8Array(weight.bytes.length);
  await backend.read(buffers.get('weight') as BufferHandle, 0, bytes);
  expect(Buffer.compare(bytes, weight.bytes)).toBe(0);
  await backend.dispose();
}

async function checkLargeScale(options: Options, dtype: DType): Promise<void> {
  const backend = await borrowBackend(options);
  const weight = matrix(dtype, 8, 256);
  new DataView(weight.bytes.buffer).setUint16(sizeOf(dtype, 5 * 256) + (dtype === 'q6_K' ? 208 : 0), 0x5400, true);
  decode(dtype, weight.bytes, weight.values);
  const b = new ProgramBuilder({});
  const x = b.external('x', 'weights', 'f32', [1, 256]);
  b.output('y', b.activation('matmul', { x, weight: b.external('weight', 'weights', dtype, [8, 256]) }));
  const xs = gaussian(9, 256);
  const buffers = await load(backend, { x: new Uint8Array(xs.buffer), weight: weight.bytes });
  const executable = await backend.prepare(b.build(), { buffers });
  await executable.run(new Int32Array(0));
  const y = new Float32Array(8);
  await executable.read('y', y);
  for (let row = 0; row < 8; row++) {
    let [exact, magnitude] = [0, 0];
    for (let i = 0; i < 256; i++) {
      const product = (xs[i] as number) * (weight.values[row * 256 + i] as number);
      exact += product;
      magnitude += Math.abs(product);
    }
    // a sum of 256 products in f32: activations were not quantized
    expect(Math.abs((y[row] as number) - exact)).toBeLessThanOrEqual(256 * unit * magnitude);
  }
  await backend.dispose();
}

async function checkSharedWeights(options: Options): Promise<void> {
  const backend = await borrowBackend(options);
  const weight = matrix('q8_0', 8, 64);
  const b = new ProgramBuilder({});
  const x = b.external('x', 'weights', 'f32', [1, 64]);
  b.output('y', b.activation('matmul', { x, weight: b.external('weight', 'weights', 'q8_0', [8, 64]) }));
  const other = new ProgramBuilder({});
  const table = other.external('weight', 'weights', 'q8_0', [16, 32]); // the same bytes with another dtype
  const tokens = other.external('tokens', 'weights', 'i32', [1]);
  other.output('row', other.activation('embedding-lookup', { table, tokens }));
  const xs = gaussian(5, 64);
  const buffers = await load(backend, {
    x: new Uint8Array(xs.buffer),
    weight: new Uint8Array(weight.bytes.length),
    tokens: new Uint8Array(Int32Array.of(3).buffer),
  });
  const product = await backend.prepare(b.build(), { buffers });
  const lookup = await backend.prepare(other.build(), { buffers });
  await backend.write(buffers.get('weight') as BufferHandle, 0, weight.bytes);
  for (let round = 0; round < 2; round++) {
    await product.run(new Int32Array(0));
    const y = new Float32Array(8);
    await product.read('y', y);
    expectProducts(y, xs, weight.values, 64, new Float32Array(8));
    await lookup.run(new Int32Array(0));
    const row = new Float32Array(32);
    await lookup.read('row', row);
    expect(row.map((value) => value + 0)).toEqual(weight.values.slice(3 * 32, 4 * 32).map((value) => value + 0));
  }
  await backend.dispose();
}

describe.each(Object.entries({ ...variants, ...nativeVariants }))('%s', (name, options) => {
  describe.each(repacked)('%s', (dtype) => {
    test.each(shapesFor(shapes, name, repacked.indexOf(dtype)))('$numTokens x $numInputs -> $numOutputs', (shape) =>
      checkProducts(options, dtype, shape),
    );

    test.each([1, 3, 5])('largest codes, %i tokens, after and before other dtypes with the same activations', (n) =>
      checkLargestCodes(options, dtype, n),
    );

    test('a table used for lookup and matmul', () => checkSharedTable(options, dtype));
  });

  test.each(repacked)('%s weights with non-finite scales are computed in f32', (dtype) =>
    checkInfiniteScale(options, dtype),
  );

  test.each(repacked)('%s weights with scales of every size up to 64 are read back unchanged', (dtype) =>
    checkSmallScales(options, dtype),
  );

  test.each(repacked)('%s weights with a scale of 64 are computed in f32', (dtype) => checkLargeScale(options, dtype));

  test('weights written after prepare, and shared with a program that cannot use them repacked', () =>
    checkSharedWeights(options));
});
