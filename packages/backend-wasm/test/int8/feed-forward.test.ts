/** Sparse FFNs with int8 activations against float64 with derived bounds, for any number of threads, in passes. */
import { neuronGroup, ProgramBuilder, type BufferHandle, type ProgramTensor } from '@winnow/ops';
import { createRng, decode, dtypeInfo, sizeOf, type DType } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import { createWasmBackend, type CreateWasmBackendOptions } from '../../src/index.js';
import { minPanelTokens, neuronColumns } from '../../src/kernels/layout.generated.js';
import {
  borrowBackend,
  bytesOf,
  encodedOnce,
  expectSameBits,
  nativeVariants,
  shapesFor,
  shuffledRows,
  type TestBackend,
  variants,
} from './setup.js';

const unit = 2 ** -24;

interface Shape {
  readonly numTokens: number;
  /** E. */
  readonly width: number;
  readonly numRows: number;
  readonly count: number;
  /** Factor of the weights, which makes scales denormal binary16 numbers. */
  readonly factor: number;
}

const shapes: readonly Shape[] = [
  { numTokens: 1, width: 256, numRows: 90, count: 67, factor: 1 },
  { numTokens: 1, width: 2208, numRows: 40, count: 40, factor: 1 },
  { numTokens: 1, width: 96, numRows: 1400, count: 1301, factor: 1 },
  { numTokens: 1, width: 512, numRows: 5, count: 3, factor: 1 },
  { numTokens: 1, width: 512, numRows: 3, count: 0, factor: 1 },
  { numTokens: 1, width: 768, numRows: 40, count: 33, factor: 1e-5 },
  { numTokens: 3, width: 736, numRows: 50, count: 41, factor: 1 },
  { numTokens: 3, width: 384, numRows: 50, count: 41, factor: 1 },
  { numTokens: 2, width: 256, numRows: 220, count: 200, factor: 1 },
  { numTokens: 1, width: 128, numRows: 1400, count: 1301, factor: 1 },
  { numTokens: 9, width: 768, numRows: 50, count: 37, factor: 1 },
  { numTokens: 130, width: 256, numRows: 80, count: 66, factor: 1 },
  { numTokens: 4, width: 128, numRows: 40, count: 35, factor: 1 },
  { numTokens: 5, width: 640, numRows: 40, count: 32, factor: 1e-5 },
  { numTokens: 6, width: 896, numRows: 5, count: 3, factor: 1 },
  { numTokens: 4, width: 384, numRows: 3, count: 0, factor: 1 },
];

interface Setup extends Shape {
  readonly dtype: DType;
  readonly weight: Uint8Array;
  /** Dequantized. */
  readonly values: Float32Array;
  readonly rows: Int32Array;
  readonly x: Float32Array;
}

function setUp(dtype: DType, shape: Shape): Setup {
  const rng = createRng(7);
  const { numTokens, width, numRows, factor } = shape;
  const { weight, values } = encodedOnce(`${dtype} 3 x ${width} x ${numRows}, ${factor}`, dtype, () => {
    const ofWeight = createRng(8);
    const random = new Float32Array(3 * width * numRows);
    for (let i = 0; i < random.length; i++) random[i] = (ofWeight.nextGaussian() * factor) / 16;
    return random.fill(0, 2 * width, 2 * width + 64); // blocks with a scale of zero
  });
  const rows = shuffledRows(rng, numRows);
  const x = Float32Array.from({ length: numTokens * width }, () => rng.nextGaussian());
  return { ...shape, dtype, weight, values, rows, x };
}

/** Runs in passes of the given numbers of neurons. */
async function run(setup: Setup, passes: readonly number[], options: CreateWasmBackendOptions): Promise<Float32Array> {
  const { dtype, numTokens, width, numRows, weight, rows, x } = setup;
  const b = new ProgramBuilder({});
  const contents: Record<string, Uint8Array> = { x: bytesOf(x), weight };
  const inputs = {
    x: b.external('x', 'weights', 'f32', [numTokens, width]),
    weight: b.external('weight', 'weights', dtype, [numRows, 3, width]),
  };
  let previous: ProgramTensor | undefined;
  let begin = 0;
  for (const [index, count] of passes.entries()) {
    const ofPass = new Int32Array(numRows);
    ofPass.set(rows.subarray(begin, begin + count));
    contents[`rows ${index}`] = bytesOf(ofPass);
    contents[`count ${index}`] = bytesOf(Int32Array.of(count));
    previous = b.activation(
      'sparse-feed-forward',
      {
        ...inputs,
        rows: b.external(`rows ${index}`, 'weights', 'i32', [numRows]),
        count: b.external(`count ${index}`, 'weights', 'i32', [1]),
        previous,
      },
      { kind: 'silu' },
    );
    begin += count;
  }
  return yOf(b, previous as ProgramTensor, contents, setup, options);
}

/** Runs with separate matrices for gate, up and down. */
async function runMatrices(setup: Setup, options: CreateWasmBackendOptions): Promise<Float32Array> {
  const { dtype, numTokens, width, numRows, weight, rows, count, x } = setup;
  const b = new ProgramBuilder({});
  const rowBytes = sizeOf(dtype, width);
  const contents: Record<string, Uint8Array> = {
    x: bytesOf(x),
    rows: bytesOf(rows),
    count: bytesOf(Int32Array.of(count)),
  };
  const matrix = (name: string, index: number): ProgramTensor => {
    const bytes = new Uint8Array(rowBytes * numRows);
    for (let row = 0; row < numRows; row++) {
      const from = (3 * row + index) * rowBytes;
      bytes.set(weight.subarray(from, from + rowBytes), row * rowBytes);
    }
    contents[name] = bytes;
    return b.external(name, 'weights', dtype, [numRows, width]);
  };
  const chosen = {
    rows: b.external('rows', 'weights', 'i32', [numRows]),
    count: b.external('count', 'weights', 'i32', [1]),
  };
  const inputs = { x: b.external('x', 'weights', 'f32', [numTokens, width]), ...chosen };
  const gate = b.activation('sparse-matmul', { ...inputs, weight: matrix('gate', 0) });
  const up = b.activation('sparse-matmul', { ...inputs, weight: matrix('up', 1) });
  const h = b.activation('glu', { gate, up, count: chosen.count }, { kind: 'silu' });
  const y = b.activation('sparse-combine', { h, weight: matrix('down', 2), ...chosen });
  return yOf(b, y, contents, setup, options);
}

async function yOf(
  b: ProgramBuilder,
  output: ProgramTensor,
  contents: Readonly<Record<string, Uint8Array>>,
  { numTokens, width }: Setup,
  options: CreateWasmBackendOptions,
): Promise<Float32Array> {
  const backend = await borrowBackend(options);
  b.output('y', output);
  const buffers = new Map<string, BufferHandle>();
  for (const [label, bytes] of Object.entries(contents)) {
    const handle = backend.allocate({ sizeBytes: bytes.length, usage: 'weights', label });
    await backend.write(handle, 0, bytes);
    buffers.set(label, handle);
  }
  const executable = await backend.prepare(b.build(), { buffers, onUnsupported: 'error' });
  const before = backend.numNativeRecords;
  await executable.run(new Int32Array(0));
  expect(backend.numNativeRecords > before).toBe(runsNatively(numTokens, options));
  const y = new Float32Array(numTokens * width);
  await executable.read('y', y);
  // independent of the order in the kernels
  for (const [label, bytes] of Object.entries(contents))
    expect(await bytesIn(backend, buffers.get(label))).toEqual(bytes);
  await backend.dispose();
  return y;
}

/** Batches run in WebAssembly. */
function runsNatively(numTokens: number, { native }: CreateWasmBackendOptions): boolean {
  return native !== undefined && numTokens < minPanelTokens;
}

/** Whether kernels add in the order of the four ops: native ones do unless neurons are repacked. */
function addsInOrder({ dtype, numTokens, width }: Setup, options: CreateWasmBackendOptions): boolean {
  return !runsNatively(numTokens, options) || dtype === 'q4_K' || width % neuronColumns !== 0;
}

async function bytesIn(backend: TestBackend, buffer: BufferHandle | undefined): Promise<Uint8Array> {
  const handle = buffer as BufferHandle;
  const bytes = new Uint8Array(handle.sizeBytes);
  await backend.read(handle, 0, bytes);
  return bytes;
}

/** The dot product with a row and its error bound: half a quantization step per code, and the roundings of the sums. */
function product({ x, values, width, factor }: Setup, t: number, row: number): readonly [number, number] {
  let sum = 0;
  let bound = 0;
  for (let block = 0; block < width; block += 32) {
    let d = 0;
    for (let i = block; i < block + 32; i++) d = Math.max(d, Math.abs(x[t * width + i] as number) / 127);
    for (let i = block; i < block + 32; i++) {
      const [a, w] = [x[t * width + i] as number, values[row * width + i] as number];
      sum += a * w;
      bound +=
        Math.abs(w) * d * 0.5 * (1 + 1e-5) + (width / 16 + 8) * unit * (Math.abs(a) + d) * (Math.abs(w) + factor);
    }
  }
  return [sum, bound];
}

/** `silu(gate) * up`, whose slope in gate is at most 1.1 up. */
function gated(setup: Setup, t: number, neuron: number): readonly [number, number] {
  const [g, ofG] = product(setup, t, 3 * neuron);
  const [u, ofU] = product(setup, t, 3 * neuron + 1);
  const a = g / (1 + Math.exp(-g));
  const ofA = 1.1 * ofG + 32 * unit * Math.abs(g);
  return [a * u, (ofA * Math.abs(u) + Math.abs(a) * ofU + ofA * ofU) * (1 + 4 * unit) + unit * Math.abs(a * u)];
}

/** The magnitudes of the scales of all blocks. */
function scalesOf({ dtype, weight }: Setup): Float32Array {
  const { blockBytes } = dtypeInfo(dtype);
  const halves = new Uint8Array((2 * weight.length) / blockBytes);
  for (let at = 0, to = 0; at < weight.length; at += blockBytes, to += 2) halves.set(weight.subarray(at, at + 2), to);
  const scales = new Float32Array(halves.length / 2);
  decode('f16', halves, scales);
  return scales.map(Math.abs);
}

interface Bounded {
  readonly sum: number;
  readonly bound: number;
}

const expectations = new Map<string, readonly Bounded[]>();

/** Sums and bounds of a setup of `setUp`, computed once: all variants draw it from the same seeds. */
function boundsOf(setup: Setup): readonly Bounded[] {
  const { dtype, numTokens, width, numRows, count, factor } = setup;
  const key = [dtype, numTokens, width, numRows, count, factor].join();
  const known = expectations.get(key) ?? computeBounds(setup);
  expectations.set(key, known);
  return known;
}

function computeBounds(setup: Setup): Bounded[] {
  const { dtype, numTokens, width, count, rows, values } = setup;
  const largestCode = dtype === 'q8_0' ? 127 : 8;
  const scales = scalesOf(setup);
  const found: Bounded[] = [];
  for (let t = 0; t < numTokens; t++) {
    const hs = Array.from({ length: count }, (_, j) => gated(setup, t, rows[j] as number));
    for (let o = 0; o < width; o++) {
      let sum = 0;
      let bound = 0;
      for (let chunk = 0; chunk < count; chunk += neuronGroup) {
        let step = 0; // of the coefficients h times scale
        let magnitude = 0;
        let codes = 0;
        for (let j = chunk; j < Math.min(count, chunk + neuronGroup); j++) {
          const neuron = rows[j] as number;
          const [h, ofH] = hs[j] as readonly [number, number];
          const scale = scales[(3 * neuron + 2) * (width / 32) + Math.floor(o / 32)] as number;
          const w = values[(3 * neuron + 2) * width + o] as number;
          step = Math.max(step, ((Math.abs(h) + ofH) * scale) / 127);
          sum += h * w;
          bound += ofH * Math.abs(w);
          magnitude += (Math.abs(h) + ofH) * Math.abs(w);
          codes += scale === 0 ? largestCode : Math.abs(w) / scale;
        }
        bound += codes * step * 0.5 * (1 + 1e-5) + (count / 8 + 4) * unit * (magnitude + codes * step);
      }
      found.push({ sum, bound });
    }
  }
  return found;
}

function countOutside(setup: Setup, y: Float32Array, bounds: readonly Bounded[] = computeBounds(setup)): number {
  return bounds.filter(({ sum, bound }, at) => !(Math.abs((y[at] as number) - sum) <= bound)).length;
}

const dtypes = ['q8_0', 'q4_0', 'q4_K'] as const;

describe.each(dtypes)('%s', (dtype) => {
  const wholeBlocks = dtype === 'q4_K' ? shapes.filter(({ width }) => width % 256 === 0) : shapes;
  const results = new Map<string, Float32Array>();
  describe.each(Object.entries({ ...variants, ...nativeVariants }))('%s', (name, options) => {
    const chosen = shapesFor(wholeBlocks, name, dtypes.indexOf(dtype));
    test.each(chosen)('$numTokens x $width, $count of $numRows neurons, times $factor', async (shape) => {
      const setup = setUp(dtype, shape);
      const y = await run(setup, [setup.count], options);
      const ofMatrices = await runMatrices(setup, options);
      if (addsInOrder(setup, options)) expectSameBits(y, ofMatrices); // bit-identical to the four ops
      else expect(countOutside(setup, ofMatrices, boundsOf(setup))).toBe(0);
      const key = `${JSON.stringify(shape)} ${String(options.relaxedSimd)} ${String(options.native)}`;
      const first = results.get(key);
      expectSameBits(y, first ?? y);
      results.set(key, y);
      // sums of k-quants have the exact coefficients
      if (first === undefined && dtype !== 'q4_K') expect(countOutside(setup, y, boundsOf(setup))).toBe(0);
    });

    test.each(chosen.filter(({ count }) => count > neuronGroup))(
      '$numTokens x $width, $count neurons: passes of whole groups have the bits of one',
      async (shape) => {
        const setup = setUp(dtype, shape);
        const passes = [neuronGroup, setup.count - neuronGroup, 0];
        expectSameBits(await run(setup, passes, options), await run(setup, [setup.count], options));
      },
    );
  });
});

const shape: Shape = { numTokens: 1, width: 256, numRows: 61, count: 53, factor: 1 };

/** Scales below 64: denormal, zero, smallest normal, negative; then scales for which rows are not repacked. */
const small = [0x0001, 0x8003, 0x03ff, 0x0400, 0x0000, 0x8000, 0x2c00, 0xac01, 0x53ff, 0xd3ff];
const large = [0x5400, 0xfbff, 0x7c00, 0x7e01];

async function checkSharedWeights(dtype: 'q8_0' | 'q4_0'): Promise<void> {
  const setup = setUp(dtype, shape);
  const { width, numRows, count, rows, x, weight, values } = setup;
  const alone = await run(setup, [count], { relaxedSimd: true, numThreads: 2, minSharedWork: 0 });
  const backend = await createWasmBackend({
    maxMemoryBytes: 2 ** 26,
    activations: 'int8',
    relaxedSimd: true,
    numThreads: 2,
    minSharedWork: 0,
  });
  const b = new ProgramBuilder({});
  const y = b.activation(
    'sparse-feed-forward',
    {
      x: b.external('x', 'weights', 'f32', [1, width]),
      weight: b.external('weight', 'weights', dtype, [numRows, 3, width]),
      rows: b.external('rows', 'weights', 'i32', [numRows]),
      count: b.external('count', 'weights', 'i32', [1]),
    },
    { kind: 'silu' },
  );
  b.output('y', y);
  const other = new ProgramBuilder({});
  const table = other.external('weight', 'weights', dtype, [3 * numRows, width]);
  const tokens = other.external('tokens', 'weights', 'i32', [1]);
  other.output('row', other.activation('embedding-lookup', { table, tokens }));
  const contents = { x: bytesOf(x), rows: bytesOf(rows), count: bytesOf(Int32Array.of(count)) };
  const buffers = new Map<string, BufferHandle>();
  for (const [label, bytes] of Object.entries({ ...contents, tokens: bytesOf(Int32Array.of(31)), weight })) {
    const handle = backend.allocate({ sizeBytes: bytes.length, usage: 'weights', label });
    if (label !== 'weight') await backend.write(handle, 0, bytes);
    buffers.set(label, handle);
  }
  const block = await backend.prepare(b.build(), { buffers, onUnsupported: 'error' });
  const lookup = await backend.prepare(other.build(), { buffers, onUnsupported: 'error' });
  await backend.write(buffers.get('weight') as BufferHandle, 0, weight);
  for (let round = 0; round < 2; round++) {
    await block.run(new Int32Array(0));
    const sums = new Float32Array(width);
    await block.read('y', sums);
    expectSameBits(sums, alone);
    await lookup.run(new Int32Array(0));
    const row = new Float32Array(width);
    await lookup.read('row', row);
    expect(row.map((value) => value + 0)).toEqual(values.slice(31 * width, 32 * width).map((value) => value + 0));
  }
  await backend.dispose();
}

describe.each(['q8_0', 'q4_0'] as const)('%s', (dtype) => {
  const largest = new Map<string, Float32Array>();
  describe.each(Object.entries({ ...variants, ...nativeVariants }))('%s', (_name, options) => {
    test.each([
      ['least', 0x80, 0x00, 1],
      ['largest', 0x7f, 0xff, 1],
      ['least', 0x80, 0x00, 5],
      ['largest', 0x7f, 0xff, 5],
    ] as const)('%s codes everywhere, %i and %i, %i tokens', async (kind, byte, nibbles, numTokens) => {
      const setup = setUp(dtype, { ...shape, numTokens });
      const { blockBytes } = dtypeInfo(dtype);
      setup.x.fill(1);
      setup.weight.fill(dtype === 'q8_0' ? byte : nibbles);
      const view = new DataView(setup.weight.buffer);
      for (let at = 0; at < view.byteLength; at += blockBytes) view.setUint16(at, 0x1400, true);
      decode(dtype, setup.weight, setup.values);
      const y = await run(setup, [setup.count], options);
      if (addsInOrder(setup, options)) expectSameBits(y, await runMatrices(setup, options));
      const key = `${kind} ${numTokens} ${String(options.relaxedSimd)} ${String(options.native)}`;
      const first = largest.get(key);
      if (first === undefined) expect(countOutside(setup, y)).toBe(0);
      expectSameBits(y, first ?? y);
      largest.set(key, y);
    });
  });

  describe.each(Object.entries(variants))('%s', (_name, options) => {
    test('infinite activations: bit-identical to the four ops', async () => {
      const setup = setUp(dtype, shape);
      setup.x[5] = Infinity;
      setup.x[70] = -Infinity;
      const y = await run(setup, [setup.count], options);
      expect(y).toEqual(await runMatrices(setup, options));
      expect(y.some(Number.isFinite)).toBe(false);
    });

    test.each([
      ['scales below 64', 1, small],
      ['scales of every kind', 1, [...small, ...large]],
      ['scales below 64', 5, small],
      ['scales of every kind', 5, [...small, ...large]],
    ] as const)('%s, %i tokens, have the bits of the four ops', async (_kind, numTokens, scales) => {
      const setup = setUp(dtype, { ...shape, numTokens });
      const { blockBytes } = dtypeInfo(dtype);
      const view = new DataView(setup.weight.buffer);
      // the last one in a few rows only, since a non-finite number spoils its whole column
      for (let at = 0, i = 0; at < view.byteLength; at += 7 * blockBytes, i++) {
        const numKinds = at < view.byteLength / 2 ? small.length : scales.length;
        view.setUint16(at, scales[i % numKinds] as number, true);
      }
      expect(await run(setup, [setup.count], options)).toEqual(await runMatrices(setup, options));
    });
  });

  test('weights written after prepare, and shared with a program that reads them in another layout', () =>
    checkSharedWeights(dtype));
});
