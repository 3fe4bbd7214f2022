/**
 * In batch-invariant programs, the bits of a token do not depend on the other tokens of its step, up to `maxInvariantTokens`: of ops whose
 * kernels choose by the number of tokens, each row of a step equals that of a step of its own.
 */
import {
  createScalarBlock,
  maxInvariantTokens as maxTokens,
  ProgramBuilder,
  type Attributes,
  type Backend,
  type BufferHandle,
  type ProgramTensor,
} from '@winnow/ops';
import { dtypeInfo, type DType } from '@winnow/tensor';
import { usageOf } from '../guarded-memory.js';
import type { CaseTensor } from '../kernel-case.js';
import { gaussian, ints, randomTensor, rngOf } from '../values.js';
import type { CreateBackend } from './fixtures.js';

/** Steps of these numbers of tokens begin at token 0 or end at the last one. */
const stepSizes = [2, 3, 4, 5, 9, maxTokens];

type Tensors = Readonly<Record<string, CaseTensor>>;

/** One op; its outputs `y` have a row for each token. */
interface RowOp {
  readonly name: string;
  readonly op: string;
  readonly attributes: Attributes;
  /** The inputs that all tokens share: weights and caches. */
  readonly shared: Tensors;
  /** The other inputs of tokens `[first, first + count)`. */
  inputsOf(first: number, count: number): Tensors;
}

export async function checkBatchInvariance(create: CreateBackend): Promise<string[]> {
  const backend = await create();
  const failures: string[] = [];
  if (backend.isBatchInvariant !== true) return failures;
  for (const rowOp of [...matmuls(), ...experts(), ...norms(), ...attentions()]) {
    // those of one op say enough
    if (failures.length === 0) failures.push(...(await checkRows(backend, rowOp)));
  }
  await backend.dispose();
  return failures;
}

type Handles = Map<string, BufferHandle>;

async function load(backend: Backend, name: string, { bytes }: CaseTensor): Promise<BufferHandle> {
  const handle = backend.allocate({ sizeBytes: bytes.length, usage: usageOf(name), label: name });
  await backend.write(handle, 0, bytes);
  return handle;
}

async function checkRows(backend: Backend, rowOp: RowOp): Promise<string[]> {
  const shared: Handles = new Map();
  for (const [name, tensor] of Object.entries(rowOp.shared)) shared.set(name, await load(backend, name, tensor));
  const alone: Float32Array[] = [];
  for (let token = 0; token < maxTokens; token++) alone.push(await run(backend, rowOp, shared, token, 1));
  const failures: string[] = [];
  for (const count of stepSizes) {
    for (const first of new Set([0, maxTokens - count])) {
      const rows = await run(backend, rowOp, shared, first, count);
      const width = rows.length / count;
      for (let row = 0; row < count; row++) {
        const expected = alone[first + row]!;
        const at = expected.findIndex((value, index) => !Object.is(value, rows[row * width + index]));
        if (at < 0) continue;
        const value = rows[row * width + at];
        failures.push(`${rowOp.name}: token ${row} of ${count} has ${value} at ${at}, alone ${expected[at]}`);
        break;
      }
    }
  }
  for (const handle of shared.values()) backend.free(handle);
  return failures;
}

async function run(
  backend: Backend,
  { op, attributes, shared, inputsOf }: RowOp,
  sharedHandles: Handles,
  first: number,
  count: number,
): Promise<Float32Array> {
  const b = new ProgramBuilder({});
  const own: Handles = new Map();
  const inputs: Record<string, ProgramTensor> = {};
  const scalars: (readonly [string, Int32Array])[] = [];
  for (const [name, tensor] of Object.entries({ ...shared, ...inputsOf(first, count) })) {
    const { dtype, shape, bytes } = tensor;
    if (dtype === 'i32' && !sharedHandles.has(name)) {
      inputs[name] = b.scalar(name, [...shape]);
      scalars.push([name, new Int32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4)]);
      continue;
    }
    inputs[name] = b.external(name, usageOf(name), dtype, [...shape]);
    if (!sharedHandles.has(name)) own.set(name, await load(backend, name, tensor));
  }
  b.output('y', b.append(op, inputs, attributes)['y'] as ProgramTensor);
  const program = b.build();
  const executable = await backend.prepare(program, {
    buffers: new Map([...sharedHandles, ...own]),
    onUnsupported: 'fallback',
    batchInvariant: true,
  });
  try {
    const block = createScalarBlock(program.scalars, program.symbols);
    for (const [name, values] of scalars) block.slot(name).set(values);
    await executable.run(block.words);
    const shape = program.outputs.get('y')!.shape.map(Number);
    const y = new Float32Array(shape.reduce((product, size) => product * size, 1));
    await executable.read('y', y);
    return y;
  } finally {
    await executable.dispose();
    for (const handle of own.values()) backend.free(handle);
  }
}

/** Rows `[first, first + count)` of tensors `[T, ...rest]`. */
function rowsOf({ shape: [, ...rest], bytes, dtype }: CaseTensor, first: number, count: number): CaseTensor {
  const rowBytes = 4 * rest.reduce((product, size) => product * size, 1);
  return { dtype, shape: [count, ...rest], bytes: bytes.slice(first * rowBytes, (first + count) * rowBytes) };
}

const weightTypes: readonly DType[] = ['f32', 'f16', 'bf16', 'q8_0', 'q4_0', 'q5_1', 'q4_K', 'q6_K'];

function* matmuls(): Generator<RowOp> {
  for (const dtype of weightTypes) {
    const rng = rngOf(`invariance ${dtype}`);
    const numInputs = 3 * Math.max(64, dtypeInfo(dtype).blockSize);
    const x = gaussian(rng, [maxTokens, numInputs]);
    const weight = randomTensor(rng, dtype, [37, numInputs]);
    const inputsOf = (first: number, count: number) => ({ x: rowsOf(x, first, count) });
    yield { name: `matmul ${dtype}`, op: 'matmul', attributes: {}, shared: { weight }, inputsOf };
  }
}

function* experts(): Generator<RowOp> {
  for (const dtype of ['f32', 'q8_0'] as const) {
    const rng = rngOf(`invariance of experts ${dtype}`);
    const x = gaussian(rng, [maxTokens, 1, 64]);
    const ids = ints(
      [maxTokens, 2],
      Array.from({ length: 2 * maxTokens }, (_, i) => (i % 2 === 0 ? 1 : 2 * ((i % 4) >> 1))),
    );
    const weight = randomTensor(rng, dtype, [3, 20, 64]);
    const inputsOf = (first: number, count: number) => ({
      x: rowsOf(x, first, count),
      ids: rowsOf(ids, first, count),
    });
    yield { name: `expert-matmul ${dtype}`, op: 'expert-matmul', attributes: {}, shared: { weight }, inputsOf };
  }
}

function* norms(): Generator<RowOp> {
  const rng = rngOf('invariance of norms');
  const x = gaussian(rng, [maxTokens, 67]);
  const weight = gaussian(rng, [67]);
  const inputsOf = (first: number, count: number) => ({ x: rowsOf(x, first, count) });
  yield { name: 'rms-norm', op: 'rms-norm', attributes: { eps: 1e-5 }, shared: { weight }, inputsOf };
}

/** The tokens are the last ones of contexts that threads do not split, that they split, and at whose end their number of splits grows. */
function* attentions(): Generator<RowOp> {
  const [numKvHeads, blockSize, headDim] = [2, 64, 16];
  for (const dtype of ['f32', 'f16', 'q8_0'] as const) {
    for (const [length, groupSize] of [
      [40, 2],
      [760, 3],
      [764, 8],
    ] as const) {
      const rng = rngOf(`invariance of attention ${dtype} ${length} ${groupSize}`);
      const numBlocks = Math.ceil((length + maxTokens) / blockSize);
      const depth = dtype === 'q8_0' ? 32 : headDim;
      const q = gaussian(rng, [maxTokens, numKvHeads * groupSize, depth]);
      const keys = randomTensor(rng, dtype, [numBlocks, numKvHeads, blockSize, depth]);
      const values = randomTensor(rng, dtype, [numBlocks, numKvHeads, blockSize, depth]);
      const slots = Array.from({ length: numBlocks * blockSize }, (_, slot) => (slot < length + maxTokens ? slot : -1));
      const shared = { keys, values, slotPositions: ints([numBlocks, blockSize], slots) };
      const inputsOf = (first: number, count: number): Tensors => ({
        q: rowsOf(q, first, count),
        positions: ints(
          [count],
          Array.from({ length: count }, (_, i) => length + first + i),
        ),
        sequences: ints([count], new Array<number>(count).fill(0)),
        blockTable: ints([1, numBlocks], [...new Array(numBlocks).keys()]),
        contextLengths: ints([1], [length + first + count]),
      });
      const attributes = { scale: 0.25, causal: true, window: 0, softCap: 0 };
      yield {
        name: `attention ${dtype} @${length}, groups of ${groupSize}`,
        op: 'attention',
        attributes,
        shared,
        inputsOf,
      };
    }
  }
}
