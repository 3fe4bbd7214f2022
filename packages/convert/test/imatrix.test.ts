/** Importance matrices of llama.cpp: reading, their effect on converted weights, and files that do not fit. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createWasmBackend } from '@winnow/backend-wasm';
import { memorySink, memorySource, type StoredTensor } from '@winnow/bytes';
import { loadModel } from '@winnow/engine';
import { writeGguf, type GgufFile, type GgufTensorInput, type GgufValueInput } from '@winnow/gguf';
import { openGgufFile } from '@winnow/gguf/node';
import { reencodedView } from '@winnow/models';
import { createReferenceBackend, type Backend } from '@winnow/ops';
import { ArgumentError, createRng, decode, FormatError, numElements, sizeOf, type DType } from '@winnow/tensor';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ImportanceCollector, readImportanceMatrix, type ImportanceMatrix } from '../src/index.js';
import { convertFiles } from '../src/index.node.js';

let folder: string;
beforeAll(() => void (folder = mkdtempSync(join(tmpdir(), 'winnow-imatrix-'))));
afterAll(() => rmSync(folder, { recursive: true }));

const floats = (name: string, shape: readonly number[], values: ArrayLike<number>): GgufTensorInput => ({
  ...{ name, dtype: 'f32', shape },
  data: new Uint8Array(Float32Array.from(values).buffer),
});

async function gguf(
  metadata: readonly (readonly [string, GgufValueInput])[],
  tensors: readonly GgufTensorInput[],
): Promise<Uint8Array<ArrayBuffer>> {
  const sink = memorySink();
  await writeGguf(sink, { metadata: metadata.map(([key, value]) => [key, value]), tensors: [...tensors] });
  return Uint8Array.from(sink.toBytes());
}

interface Entry {
  readonly name: string;
  readonly sums: readonly number[];
  readonly counts: readonly number[];
}

/** As `llama-imatrix` writes it. */
function imatrix(entries: readonly Entry[], type = 'imatrix'): Promise<Uint8Array<ArrayBuffer>> {
  return gguf(
    [
      ['general.type', type],
      ['imatrix.datasets', { type: 'array', elementType: 'string', value: ['book.txt'] }],
      ['imatrix.chunk_count', { type: 'uint32', value: 1 }],
      ['imatrix.chunk_size', { type: 'uint32', value: 512 }],
    ],
    entries.flatMap(({ name, sums, counts }) => [
      floats(`${name}.in_sum2`, [counts.length, sums.length / counts.length], sums),
      floats(`${name}.counts`, [counts.length, 1], counts),
    ]),
  );
}

const read = async (bytes: Uint8Array<ArrayBuffer>) => readImportanceMatrix(memorySource(bytes, 'imatrix.gguf'));

test('means of squares by column; experts without tokens count 1, matrices without any are left out', async () => {
  const { columns } = await read(
    await imatrix([
      { name: 'blk.0.attn_q.weight', sums: [4, 8], counts: [4] },
      { name: 'blk.0.ffn_up_exps.weight', sums: [6, 9, 0, 0], counts: [3, 0] },
      { name: 'blk.0.ffn_gate_exps.weight', sums: [0, 0], counts: [0] },
    ]),
  );
  expect([...columns].map(([name, values]) => [name, ...values])).toEqual([
    ['blk.0.attn_q.weight', 1, 2],
    ['blk.0.ffn_up_exps.weight', 2, 3, 1, 1],
  ]);
});

test.each([
  ['another file', Uint8Array.of(1, 2, 3, 4, 5), /magic: expected a GGUF file; llama-imatrix converts older/],
  [
    'a model',
    imatrix([{ name: 'a', sums: [1], counts: [1] }], 'model'),
    /general\.type.*: expected imatrix, got model/,
  ],
  ['no sums', imatrix([]), /in_sum2: expected sums of activations, got none/],
  [
    'a negative sum',
    imatrix([{ name: 'a', sums: [1, -1], counts: [1] }]),
    /a\.in_sum2: expected finite numbers from 0, got -1/,
  ],
  ['NaN', imatrix([{ name: 'a', sums: [1], counts: [NaN] }]), /a\.counts: expected finite numbers from 0, got NaN/],
  ['no counts', gguf([['general.type', 'imatrix']], [floats('a.in_sum2', [1, 1], [1])]), /a\.counts: missing/],
])('%s is rejected', async (_name, bytes, message) => {
  const error: unknown = await read(await bytes).catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(FormatError);
  expect((error as Error).message).toMatch(message);
});

const rng = createRng(9);
const [numRows, rowLength] = [6, 256];
const weights = Float32Array.from({ length: numRows * rowLength }, () => rng.nextGaussian());
const sums = Array.from({ length: rowLength }, () => 10 * Math.exp(2 * rng.nextGaussian()));
const matrix = 'blk.0.ffn_up.weight';

/** The file's settings are not read when a GGUF file is converted to another one. */
async function modelPath(): Promise<string> {
  const path = join(folder, 'model.gguf');
  writeFileSync(path, await gguf([['general.architecture', 'llama']], [floats(matrix, [numRows, rowLength], weights)]));
  return path;
}

async function valuesOf(path: string): Promise<Float32Array> {
  const file = await openGgufFile(path);
  const tensor = file.tensors.get(matrix) as StoredTensor;
  const bytes = new Uint8Array(tensor.sizeBytes);
  await tensor.read(bytes);
  await file.close();
  const values = new Float32Array(weights.length);
  decode(tensor.dtype, bytes, values);
  return values;
}

const weightedError = (values: Float32Array): number =>
  values.reduce((sum, value, i) => sum + (sums[i % rowLength] as number) * (value - (weights[i] as number)) ** 2, 0);

async function imatrixPath(name: string, entries: readonly Entry[]): Promise<string> {
  const path = join(folder, name);
  writeFileSync(path, await imatrix(entries));
  return path;
}

test.each(['q4_K', 'iq4_xs'] as const)('%s: the weighted error of a converted file is lower', async (type) => {
  const source = await modelPath();
  const path = await imatrixPath('imatrix.gguf', [{ name: matrix, sums, counts: [10] }]);
  const [plain, weighted] = [join(folder, `${type}.gguf`), join(folder, `${type}-i.gguf`)];
  await convertFiles(source, plain, { type });
  const { notices } = await convertFiles(source, weighted, { type, imatrix: path });
  expect(notices).toEqual([]);
  expect(weightedError(await valuesOf(weighted))).toBeLessThan(0.95 * weightedError(await valuesOf(plain)));
});

test('a matrix of another model, another shape, and a type or folder without importances are refused', async () => {
  const source = await modelPath();
  const target = join(folder, 'refused.gguf');
  const other = await imatrixPath('other.gguf', [{ name: 'blk.7.attn_q.weight', sums: [1, 2], counts: [1] }]);
  const short = await imatrixPath('short.gguf', [{ name: matrix, sums: [1, 2], counts: [1] }]);
  const both = await imatrixPath('both.gguf', [
    { name: matrix, sums, counts: [10] },
    { name: 'blk.7.attn_q.weight', sums: [1, 2], counts: [1] },
  ]);
  await expect(convertFiles(source, target, { type: 'q4_K', imatrix: other })).rejects.toThrow(
    /expected importances of matrices of this model, got blk\.7\.attn_q\.weight/,
  );
  await expect(convertFiles(source, target, { type: 'q4_K', imatrix: short })).rejects.toThrow(
    /expected importances of 1 x 256 columns, got 2: it is of another model/,
  );
  await expect(convertFiles(source, target, { type: 'q4_0', imatrix: both })).rejects.toThrow(ArgumentError);
  await expect(convertFiles(source, target, { type: 'q4_0', imatrix: both })).rejects.toThrow(
    /type: expected a type whose scales are searched for: .*q4_K.*got q4_0/,
  );
  await expect(convertFiles(source, join(folder, 'folder'), { type: 'f16', imatrix: both })).rejects.toThrow(
    /importance: expected none for a folder/,
  );
  const { notices } = await convertFiles(source, target, { type: 'q4_K', imatrix: both });
  expect(notices).toEqual([expect.stringMatching(/importances of 1 matrices are not of this model/)]);
});

const golden = (name: string): string =>
  fileURLToPath(new URL(`../../engine/test/fixtures/arch/${name}/model.gguf`, import.meta.url));
const tokens = [5, 9, 200, 31, 7, 64, 5];

async function collected(path: string, backend: Backend): Promise<ImportanceMatrix> {
  const collector = new ImportanceCollector();
  await using model = await loadModel(path, { backend: collector.observe(backend), maxSessions: 1, context: 32 });
  await model.logprobs(tokens);
  const sink = memorySink();
  await collector.write(sink, 'tokens', 1, tokens.length);
  return readImportanceMatrix(memorySource(sink.toBytes(), 'collected.gguf'));
}

async function floatsOf(file: GgufFile, name: string): Promise<Float32Array> {
  const tensor = file.tensors.get(name) as StoredTensor;
  const bytes = new Uint8Array(tensor.sizeBytes);
  await tensor.read(bytes);
  const values = new Float32Array(numElements(tensor.shape));
  decode(tensor.dtype, bytes, values);
  return values;
}

test('collected: the inputs of the first matrices are the normalized embeddings, on both backends', async () => {
  const file = await openGgufFile(golden('llama'));
  const [table, norm] = [await floatsOf(file, 'token_embd.weight'), await floatsOf(file, 'blk.0.attn_norm.weight')];
  const eps = Number(file.metadata.get('llama.attention.layer_norm_rms_epsilon')?.value);
  const matrices = [...file.tensors.values()].filter(({ shape }) => shape.length === 2).map(({ name }) => name);
  await file.close();
  const expected = norm.map(() => 0);
  for (const token of tokens) {
    const row = table.subarray(token * norm.length, (token + 1) * norm.length);
    const meanSquare = row.reduce((sum, x) => sum + x * x, 0) / row.length;
    for (const [i, x] of row.entries()) {
      expected[i] = (expected[i] as number) + (x * (norm[i] as number)) ** 2 / (meanSquare + eps) / tokens.length;
    }
  }
  const backends = [createReferenceBackend(), await createWasmBackend({ numThreads: 1 })];
  for (const backend of backends) {
    const { columns } = await collected(golden('llama'), backend);
    // the embedding table is a matrix of outputs only where it is tied
    expect(matrices.filter((name) => !columns.has(name) && name !== 'token_embd.weight')).toEqual([]);
    for (const name of ['q', 'k', 'v']) {
      const own = columns.get(`blk.0.attn_${name}.weight`) as Float32Array;
      const worst = Math.max(...own.map((value, i) => Math.abs(value / (expected[i] as number) - 1)));
      expect(worst).toBeLessThan(1e-4);
    }
    await backend.dispose();
  }
});

test('collected: each expert sees the tokens that chose it, and a converted file uses the result', async () => {
  const backend = createReferenceBackend();
  const { columns } = await collected(golden('granitemoe'), backend);
  await backend.dispose();
  const file = await openGgufFile(golden('granitemoe'));
  for (const { name, shape } of file.tensors.values()) {
    if (!name.includes('_exps.')) continue;
    const means = columns.get(name) as Float32Array;
    expect(means.length).toBe((shape[0] as number) * (shape[2] as number));
    // not all experts see the same tokens
    expect(new Set(means).size).toBeGreaterThan(1.5 * (shape[2] as number));
  }
  await file.close();
  const path = join(folder, 'experts.gguf');
  const importance = { source: 'collected', columns };
  const { notices } = await convertFiles(golden('granitemoe'), path, { type: 'iq4_nl', importance });
  expect(notices).toEqual([]);
});

test('collected: the parts of the fused matrices of Phi 3 are of the model', async () => {
  const [backend, model] = [createReferenceBackend(), golden('phi3-lengths')];
  const importance = await collected(model, backend);
  await backend.dispose();
  const { notices } = await convertFiles(model, join(folder, 'fused.gguf'), { type: 'iq4_nl', importance });
  expect(notices).toEqual([]);
});

test('experts have importances of their own, also in parts of a tensor', async () => {
  const shape = [2, 3, rowLength];
  const bytes = new Uint8Array(weights.buffer);
  const stored: StoredTensor = {
    ...{ name: 'experts', dtype: 'f32' as DType, shape, sizeBytes: bytes.length },
    read: async (target, { byteOffset = 0 } = {}) => target.set(bytes.subarray(byteOffset, byteOffset + target.length)),
  };
  const columns = Float32Array.from([...sums, ...sums.toReversed()]);
  const whole = new Uint8Array(sizeOf('q4_K', numElements(shape)));
  await reencodedView(stored, 'q4_K', columns).read(whole);
  const half = whole.length / 2;
  for (const [expert, own] of [columns.subarray(0, rowLength), columns.subarray(rowLength)].entries()) {
    const part = new Uint8Array(half);
    await reencodedView(stored, 'q4_K', own).read(part, { byteOffset: expert * half });
    expect(part).toEqual(whole.subarray(expert * half, (expert + 1) * half));
  }
  // from the middle of the second expert
  const end = new Uint8Array(half / 3);
  await reencodedView(stored, 'q4_K', columns).read(end, { byteOffset: whole.length - end.length });
  expect(end).toEqual(whole.subarray(whole.length - end.length));
});
