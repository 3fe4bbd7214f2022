/** Lexical weights and multi-vectors of XLM-RoBERTa with the layers of BGE-M3, against float64 values of torch. */
import { readFileSync } from 'node:fs';
import { localFolder } from '@winnow/hub/node';
import { memoryFolder, openStateDict, type HubFiles } from '@winnow/hub';
import { memorySink, memorySource, readBytes } from '@winnow/bytes';
import { writeSafetensors } from '@winnow/safetensors';
import { describe, expect, test } from 'vitest';
import { lexicalScore, loadEmbeddingModel, maxSim, type EmbeddingModel } from '../../src/index.js';
import { useBackends } from '../support/backends.js';
import { archPath, decodeFloats, maxDifference, readJson } from '../support/golden-files.js';

interface Row {
  readonly text: string;
  readonly ids: readonly number[];
  readonly weights: string;
  readonly vectors: string;
}

/** As for vectors of texts. The vectors of tokens are normalized; before, their lengths are about 1. */
const limit = 5e-4;
const vectorDim = 24;
const folder = archPath('xlm-roberta', 'hf') as string;
const rows = readJson<Row[]>(archPath('xlm-roberta', 'token-outputs.json') as string);
const texts = rows.map(({ text }) => text);
const outputs = ['sparse', 'multiVector'] as const;

const backends = useBackends();
const load = (source: string | HubFiles, backend = 'WebAssembly', options = {}): Promise<EmbeddingModel> =>
  loadEmbeddingModel(source, { backend: backends[backend] as never, pooling: 'cls', ...options });

/** The files of the folder in memory, without some and with others. */
async function changedFolder(without: RegExp, more: Record<string, Uint8Array> = {}): Promise<HubFiles> {
  const files = localFolder(folder);
  const kept: Record<string, Uint8Array> = {};
  for (const name of await files.list()) {
    if (without.test(name)) continue;
    const source = await files.open(name);
    kept[name] = await readBytes(source);
    await source.close();
  }
  return memoryFolder({ ...kept, ...more });
}

async function expectGolden(model: EmbeddingModel, indices: readonly number[]): Promise<void> {
  const embedded = await model.embedTexts(
    indices.map((index) => texts[index] as string),
    { outputs },
  );
  const dense = await model.embed(indices.map((index) => texts[index] as string));
  expect(embedded.map(({ vector }) => vector)).toEqual(dense);
  for (const [at, index] of indices.entries()) {
    const { sparse, multiVector, numTokens } = embedded[at] ?? {};
    const { ids, weights, vectors } = rows[index] as Row;
    expect([...(sparse?.indices ?? [])]).toEqual(ids);
    expect(maxDifference(sparse?.values as Float32Array, decodeFloats(weights))).toBeLessThan(limit);
    expect(multiVector).toHaveLength((numTokens as number) - 1);
    const actual = Float32Array.from((multiVector ?? []).flatMap((vector) => [...vector]));
    expect(maxDifference(actual, decodeFloats(vectors))).toBeLessThan(limit);
  }
}

describe.each(['WebAssembly', 'reference'])('%s backend', (backend) => {
  test('all texts in one step, and two per step', async () => {
    await using model = await load(folder, backend);
    expect(model.tokenOutputs).toEqual(outputs);
    await expectGolden(model, [0, 1, 2, 3, 4]);
    await expectGolden(model, [3]);
    await using small = await load(folder, backend, { maxTexts: 2 });
    await expectGolden(small, [4, 1, 0]);
  });
});

test('the layers may be safetensors files', async () => {
  const name = 'colbert_linear';
  const { tensors } = await openStateDict(memorySource(readFileSync(`${folder}/${name}.pt`)));
  const sink = memorySink();
  await writeSafetensors(sink, { tensors: tensors.values() });
  const files = await changedFolder(/colbert_linear/, { [`${name}.safetensors`]: sink.toBytes() });
  await using model = await load(files);
  await expectGolden(model, [0]);
});

test('a chunk contributes its largest weights, and its vectors', async () => {
  await using model = await load(folder, 'WebAssembly', { context: 16 });
  const words = [20, 21, 22, 23, 24, 25];
  const embed = async (ids: readonly number[], overflow: 'error' | 'chunk-average' = 'error') =>
    (await model.embedTexts([[0, ...ids, 2]], { outputs, overflow, normalize: false }))[0];
  const chunks = [
    [...words, ...words, 30, 31],
    [...words, ...words, 32, 33],
  ];
  for (const order of [chunks, chunks.toReversed()]) {
    const parts = await Promise.all(order.map((chunk) => embed(chunk)));
    const whole = await embed(order.flat(), 'chunk-average');
    expect(whole?.numChunks).toBe(2);
    expect(whole?.multiVector).toEqual(parts.flatMap((part) => part?.multiVector ?? []));
    const weightIn = (part: (typeof parts)[number], id: number): number =>
      part?.sparse?.values[part.sparse.indices.indexOf(id)] ?? 0;
    const differing = words.filter((id) => weightIn(parts[0], id) !== weightIn(parts[1], id));
    expect(differing.length).toBeGreaterThan(0);
    for (const id of [...words, 30, 31, 32, 33]) {
      expect(weightIn(whole, id)).toBe(Math.max(...parts.map((part) => weightIn(part, id))));
    }
  }
});

describe('refuses', () => {
  test('outputs without their layer, and outputs that do not exist', async () => {
    await using model = await load(await changedFolder(/sparse_linear/));
    expect(model.tokenOutputs).toEqual(['multiVector']);
    await expect(model.embedTexts(['x'], { outputs })).rejects.toThrow(
      'outputs: expected a model with sparse_linear.pt or sparse_linear.safetensors in its folder, such as BGE-M3, got sparse',
    );
    const unknown = model.embedTexts(['x'], { outputs: ['colbert' as never] });
    await expect(unknown).rejects.toThrow('outputs: expected sparse | multiVector, got colbert');
    await expect(model.embed(['x'], { outputs } as never)).rejects.toMatchObject({ name: 'UnknownOptionError' });
  });

  test('layers of another size', async () => {
    const files = await changedFolder(/sparse_linear/, {
      'sparse_linear.pt': readFileSync(`${folder}/colbert_linear.pt`),
    });
    await expect(load(files)).rejects.toMatchObject({ name: 'FormatError', field: 'sparse_linear.weight' });
  });
});

describe('scores', () => {
  const sparse = (entries: Record<number, number>) => ({
    indices: Int32Array.from(Object.keys(entries).map(Number)),
    values: Float32Array.from(Object.values(entries)),
  });

  test('lexical weights: products of common tokens', () => {
    expect(lexicalScore(sparse({ 3: 0.5, 7: 2, 9: 1 }), sparse({ 1: 4, 3: 2, 9: 0.25, 11: 1 }))).toBe(1.25);
    expect(lexicalScore(sparse({}), sparse({ 1: 4 }))).toBe(0);
  });

  test('multi-vectors: the best document vector of each query vector', () => {
    const vectors = (...list: number[][]): Float32Array[] => list.map((values) => Float32Array.from(values));
    expect(maxSim(vectors([1, 0], [0, -1]), vectors([0.5, 0.5], [-1, 0.25], [0.25, 0]))).toBe(0.5);
    expect(maxSim(vectors([1, 0]), [])).toBe(0);
    expect(() => maxSim(vectors([1, 0]), vectors([1]))).toThrow('vectors of one length');
  });
});

test('vectors have the dimension of their layer', async () => {
  await using model = await load(folder);
  const [text] = await model.embedTexts(['boats'], { outputs: ['multiVector'] });
  expect(text?.multiVector?.map(({ length }) => length)).toEqual([vectorDim, vectorDim]);
  expect(text?.sparse).toBeUndefined();
});
