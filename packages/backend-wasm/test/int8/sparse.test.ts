/** sparse-matmul and sparse-combine with int8 activations against float64 with derived bounds. */
import { ProgramBuilder, type BufferHandle } from '@winnow/ops';
import { createRng, decode, dtypeInfo, type DType } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import type { CreateWasmBackendOptions } from '../../src/index.js';
import { minPanelTokens } from '../../src/kernels/layout.generated.js';
import {
  borrowBackend,
  bytesOf,
  encodedOnce,
  expectSameBits,
  expectWithin,
  nativeVariants,
  shapesFor,
  shuffledRows,
  stepsOf,
  type Bounds,
  variants,
} from './setup.js';

const unit = 2 ** -24;

interface Shape {
  readonly numTokens: number;
  /** Columns of the weight: inputs of sparse-matmul, outputs of sparse-combine. */
  readonly columns: number;
  readonly numRows: number;
  readonly count: number;
  /** Factor of the weights, which makes scales denormal binary16 numbers, or too large to be interleaved. */
  readonly factor: number;
}

const shapes: readonly Shape[] = [
  { numTokens: 1, columns: 256, numRows: 70, count: 33, factor: 1 },
  { numTokens: 1, columns: 2304, numRows: 90, count: 70, factor: 1 },
  { numTokens: 1, columns: 512, numRows: 5, count: 3, factor: 1 },
  { numTokens: 1, columns: 512, numRows: 3, count: 0, factor: 1 },
  { numTokens: 1, columns: 768, numRows: 40, count: 40, factor: 1e-5 },
  { numTokens: 1, columns: 256, numRows: 12, count: 9, factor: 1e5 },
  { numTokens: 3, columns: 768, numRows: 50, count: 41, factor: 1 },
  { numTokens: 9, columns: 768, numRows: 50, count: 37, factor: 1 },
  { numTokens: 150, columns: 512, numRows: 80, count: 66, factor: 1 },
  { numTokens: 6, columns: 256, numRows: 12, count: 9, factor: 1e5 },
];

const results = new Map<string, Float32Array>();

interface Setup extends Shape {
  readonly weight: Uint8Array;
  /** Dequantized. */
  readonly values: Float32Array;
  readonly rows: Int32Array;
}

function setUp(dtype: DType, shape: Shape): Setup {
  const rng = createRng(11);
  const { columns, numRows, factor } = shape;
  const { weight, values } = encodedOnce(`${dtype} ${columns} x ${numRows}, ${factor}`, dtype, () => {
    const ofWeight = createRng(12);
    const random = new Float32Array(columns * numRows);
    for (let i = 0; i < random.length; i++) random[i] = ofWeight.nextGaussian() * factor;
    return random.fill(0, 0, 64); // a block with a scale of zero
  });
  const rows = shuffledRows(rng, numRows);
  return { ...shape, weight, values, rows };
}

async function runTwice(
  op: 'sparse-matmul' | 'sparse-combine',
  dtype: DType,
  { columns, numRows, count, numTokens, weight, rows }: Setup,
  x: Float32Array,
  options: CreateWasmBackendOptions,
): Promise<[Float32Array, Float32Array]> {
  const backend = await borrowBackend(options);
  const b = new ProgramBuilder({});
  const name = op === 'sparse-matmul' ? 'x' : 'h';
  const width = x.length / numTokens;
  const inputs = {
    [name]: b.external(name, 'weights', 'f32', [numTokens, width]),
    weight: b.external('weight', 'weights', dtype, [numRows, columns]),
    rows: b.external('rows', 'weights', 'i32', [numRows]),
    count: b.external('count', 'weights', 'i32', [1]),
  };
  b.output('y', b.activation(op, inputs));
  // the same activations again: their codes are reused
  b.output('z', b.activation(op, inputs));
  const buffers = new Map<string, BufferHandle>();
  const contents = { [name]: bytesOf(x), weight, rows: bytesOf(rows), count: bytesOf(Int32Array.of(count)) };
  for (const [label, bytes] of Object.entries(contents)) {
    const handle = backend.allocate({ sizeBytes: bytes.length, usage: 'weights', label });
    await backend.write(handle, 0, bytes);
    buffers.set(label, handle);
  }
  const executable = await backend.prepare(b.build(), { buffers, onUnsupported: 'error' });
  const before = backend.numNativeRecords;
  await executable.run(new Int32Array(0));
  // batches run in WebAssembly
  const isNative = options.native !== undefined && numTokens < minPanelTokens;
  expect(backend.numNativeRecords - before).toBe(isNative ? 2 : 0);
  const length = numTokens * (op === 'sparse-matmul' ? numRows : columns);
  const [y, z] = [new Float32Array(length), new Float32Array(length)];
  await executable.read('y', y);
  await executable.read('z', z);
  await backend.dispose();
  return [y, z];
}

/**
 * Neither the number of threads nor a second record changes anything. Returns whether the result is the first one,
 * whose bounds are to be checked: the others are the same.
 */
function expectStable(key: string, y: Float32Array, z: Float32Array): boolean {
  expectSameBits(z, y);
  const first = results.get(key);
  expectSameBits(y, first ?? y);
  results.set(key, first ?? y);
  return first === undefined;
}

type Options = CreateWasmBackendOptions;

function matmulBounds({ numTokens, columns, numRows, count, values, rows, factor }: Setup, x: Float32Array): Bounds {
  const steps = stepsOf(x);
  const [sums, bounds] = [new Float64Array(numTokens * numRows), new Float64Array(numTokens * numRows)];
  for (let at = 0; at < sums.length; at++) {
    const [t, j] = [Math.floor(at / numRows), at % numRows];
    if (j >= count) continue;
    const row = (rows[j] as number) * columns;
    let bound = 0;
    for (let i = 0; i < columns; i++) {
      const [a, w] = [x[t * columns + i] as number, values[row + i] as number];
      const d = steps[(t * columns + i) >> 5] as number;
      sums[at] = (sums[at] as number) + a * w;
      // as for matmul: half a quantization step, and the roundings of the sums
      bound +=
        Math.abs(w) * d * 0.5 * (1 + 1e-5) + (columns / 16 + 8) * unit * (Math.abs(a) + d) * (Math.abs(w) + 8 * factor);
    }
    bounds[at] = bound;
  }
  return { values: sums, bounds };
}

async function checkMatmul(options: Options, dtype: Parameters<typeof setUp>[0], shape: Shape): Promise<void> {
  const setup = setUp(dtype, shape);
  const { numTokens, columns } = setup;
  const rng = createRng(5);
  const x = Float32Array.from({ length: numTokens * columns }, () => rng.nextGaussian());
  const [y, z] = await runTwice('sparse-matmul', dtype, setup, x, options);
  const key = `matmul ${dtype} ${JSON.stringify(shape)}`;
  if (!expectStable(`${key} ${String(options.relaxedSimd)} ${String(options.native)}`, y, z)) return;
  expectWithin(y, key, () => matmulBounds(setup, x));
}

function combineBounds(dtype: DType, setup: Setup, h: Float32Array): Bounds {
  const { numTokens, columns, numRows, count, values, rows, weight } = setup;
  const { blockBytes } = dtypeInfo(dtype);
  const half = new Float32Array(1);
  const scales = Float32Array.from({ length: (numRows * columns) / 32 }, (_, block) => {
    decode('f16', weight.slice(block * blockBytes, block * blockBytes + 2), half);
    return Math.abs(half[0] as number);
  });
  const scaleOf = (row: number, block: number): number => scales[row * (columns / 32) + block] as number;
  const largestCode = dtype === 'q8_0' ? 127 : 8;
  const [sums, bounds] = [new Float64Array(numTokens * columns), new Float64Array(numTokens * columns)];
  for (let at = 0; at < sums.length; at++) {
    const [t, o] = [Math.floor(at / columns), at % columns];
    let sum = 0;
    let bound = 0;
    for (let chunk = 0; chunk < count; chunk += 32) {
      const end = Math.min(count, chunk + 32);
      let step = 0; // of the coefficients h times scale
      let magnitude = 0;
      let codes = 0;
      for (let j = chunk; j < end; j++) {
        const [row, factor] = [rows[j] as number, h[t * numRows + j] as number];
        const scale = scaleOf(row, Math.floor(o / 32));
        step = Math.max(step, Math.abs(factor * scale) / 127);
        const w = values[row * columns + o] as number;
        sum += factor * w;
        magnitude += Math.abs(factor * w);
        codes += scale === 0 ? largestCode : Math.abs(w) / scale;
      }
      // half a step per coefficient times the code; then roundings of coefficients, of a product, of at most four sums of
      // eight rows, and of a sum for every 32 rows
      bound += codes * step * 0.5 * (1 + 1e-5) + (count / 32 + 8) * unit * (magnitude + codes * step);
    }
    [sums[at], bounds[at]] = [sum, bound];
  }
  return { values: sums, bounds };
}

async function checkCombine(options: Options, dtype: 'q8_0' | 'q4_0', shape: Shape): Promise<void> {
  const setup = setUp(dtype, shape);
  const { numTokens, numRows, count } = setup;
  const rng = createRng(5);
  // values beyond the count must not matter
  const h = Float32Array.from({ length: numTokens * numRows }, (_, i) =>
    i % numRows < count ? rng.nextGaussian() * 10 ** (rng.nextInt(3) - 1) : NaN,
  );
  const [y, z] = await runTwice('sparse-combine', dtype, setup, h, options);
  const key = `combine ${dtype} ${JSON.stringify(shape)}`;
  if (!expectStable(`${key} ${String(options.relaxedSimd)} ${String(options.native)}`, y, z)) return;
  expectWithin(y, key, () => combineBounds(dtype, setup, h));
}

const dtypes = ['q8_0', 'q4_0', 'q4_K', 'q5_K', 'q6_K'] as const;

describe.each(Object.entries({ ...variants, ...nativeVariants }))('%s', (name, options) => {
  describe.each(dtypes)('sparse-matmul %s', (dtype) => {
    test.each(shapesFor(shapes, name, dtypes.indexOf(dtype)))(
      '$numTokens x $columns, $count of $numRows rows, times $factor',
      (shape) => checkMatmul(options, dtype, shape),
    );
  });

  describe.each(['q8_0', 'q4_0'] as const)('sparse-combine %s', (dtype) => {
    test.each(shapesFor(shapes, name, dtypes.indexOf(dtype)))(
      '$numTokens tokens, $count of $numRows rows of $columns, times $factor',
      (shape) => checkCombine(options, dtype, shape),
    );
  });
});
