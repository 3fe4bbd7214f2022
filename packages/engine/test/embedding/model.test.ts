/** Guarantees of embedding models beyond the values of the goldens. */
import { createWasmBackend } from '@winnow/backend-wasm';
import { openGgufFile } from '@winnow/gguf/node';
import { createReferenceBackend, type Backend } from '@winnow/ops';
import { ArgumentError, CapacityError, createRng, decode, ReleasedError, type Rng } from '@winnow/tensor';
import { testCoverage } from '@winnow/test-utils';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { inspectModel, loadEmbeddingModel, loadModel, type EmbeddingModel } from '../../src/index.js';
import { archPath, decodeFloats, maxDifference, readJson } from '../support/golden-files.js';

const encoder = archPath('bert-mean', 'model.gguf') as string;
const contextSize = 128;
const [cls, sep] = [2, 3];

let backends: readonly Backend[];
let model: EmbeddingModel;
beforeAll(async () => {
  backends = [await createWasmBackend({ numThreads: 1 }), createReferenceBackend()];
  model = await loadEmbeddingModel(encoder, { backend: backends[0] as Backend });
});
afterAll(async () => {
  await model.dispose();
  for (const backend of backends) await backend.dispose();
});

function randomTexts(rng: Rng, count: number, longest: number): number[][] {
  return Array.from({ length: count }, () => {
    const words = Array.from({ length: 1 + rng.nextInt(longest - 2) }, () => 5 + rng.nextInt(200));
    return [cls, ...words, sep];
  });
}

const cosine = (a: Float32Array, b: Float32Array): number => {
  const dot = a.reduce((sum, value, i) => sum + value * (b[i] as number), 0);
  return dot / Math.hypot(...a) / Math.hypot(...b);
};

describe.each([0, 1])('backend %i', (index) => {
  // the slow reference embeds fewer texts
  const [numTexts, numLong, longest] = testCoverage === 'full' || index === 0 ? [24, 12, contextSize] : [9, 9, 40];
  let batched: EmbeddingModel;
  beforeAll(async () => {
    batched = await loadEmbeddingModel(encoder, { backend: backends[index] as Backend, batchSize: 300, maxTexts: 7 });
  });
  afterAll(() => batched.dispose());

  test('a text has the same vector, bit for bit, alone, in a batch and in any order', async () => {
    const texts = [[cls, sep], [9], [cls, 9, sep], ...randomTexts(createRng(1), numTexts, longest / 2)];
    const together = await batched.embed(texts);
    for (const [at, text] of texts.entries()) expect(await batched.embed([text])).toEqual([together[at]]);
    const backwards = await batched.embed(texts.toReversed());
    expect(backwards.toReversed()).toEqual(together);
  });

  test('any batch size gives the same vectors', async () => {
    const texts = randomTexts(createRng(2), numLong, longest);
    const expected = await batched.embed(texts, { normalize: false });
    for (const options of [{ maxTexts: 1 }, { batchSize: 1000 }, { batchSize: 1, maxTexts: 3 }]) {
      await using other = await loadEmbeddingModel(encoder, { backend: backends[index] as Backend, ...options });
      const actual = await other.embed(texts, { normalize: false });
      const worst = Math.max(...actual.map((vector, at) => maxDifference(vector, expected[at] as Float32Array)));
      expect(worst).toBe(0);
    }
  });
});

describe('an embedding model', () => {
  test('describes itself', async () => {
    expect(model).toMatchObject({
      name: 'tiny random bert mean',
      pooling: 'mean',
      dimensions: 64,
      contextSize,
      backend: 'wasm',
      fallbacks: [],
      notices: [],
      prompts: {},
      matryoshkaDimensions: 'none',
      config: { architecture: 'bert', isEncoder: true },
    });
    const { plan } = await inspectModel(encoder);
    expect(plan).toEqual(model.plan);
    expect(plan.totalBytes).toBe(plan.weightsBytes + plan.kvBytes + plan.activationBytes);
    const small = { context: 16, batchSize: 16 };
    await using fewer = await loadEmbeddingModel(encoder, small);
    expect((await inspectModel(encoder, small)).plan).toEqual(fewer.plan);
    expect(fewer.plan.totalBytes).toBeLessThan(plan.totalBytes);
    const budget = plan.totalBytes - 1;
    await expect(loadEmbeddingModel(encoder, { memory: budget })).rejects.toThrow(CapacityError);
  });

  test('counts tokens and reports progress', async () => {
    const seen: number[] = [];
    const texts = ['x', 'and the dog, 42 birds!', [cls, 9, sep]];
    const embedded = await model.embedTexts(texts, { onProgress: ({ embeddedTexts }) => seen.push(embeddedTexts) });
    expect(embedded.map(({ numTokens }) => numTokens)).toEqual([3, 10, 3]);
    expect(embedded.every(({ numChunks, numDroppedTokens }) => numChunks === 1 && numDroppedTokens === 0)).toBe(true);
    expect(seen).toEqual([3]);
    expect([...model.encodeText('x')]).toEqual([cls, 28, sep]);
    expect(await model.embed([])).toEqual([]);
  });
});

describe('texts beyond the context', () => {
  test('rejects texts beyond the context before it computes any', async () => {
    const long = [cls, ...new Array<number>(contextSize - 1).fill(9), sep];
    const seen: unknown[] = [];
    const refused = model.embed(['x', long], { onProgress: (progress) => seen.push(progress) });
    await expect(refused).rejects.toThrow('texts[1]: needed 129 tokens, available 128 tokens');
    expect(seen).toEqual([]);
    expect(await model.embed([long.slice(1)])).toHaveLength(1);
  });

  test('truncates texts to the context and keeps the special tokens at the end', async () => {
    const content = randomTexts(createRng(3), 1, 300)[0]?.slice(1, -1) as number[];
    while (content.length < 200) content.push(7);
    const [actual] = await model.embedTexts([[cls, ...content, sep]], { overflow: 'truncate' });
    const [expected] = await model.embed([[cls, ...content.slice(0, contextSize - 2), sep]]);
    expect(actual?.vector).toEqual(expected);
    expect(actual).toMatchObject({
      numTokens: contextSize,
      numChunks: 1,
      numDroppedTokens: content.length - contextSize + 2,
    });
    // no special tokens are added to ids
    const [plain] = await model.embedTexts([content], { overflow: 'truncate' });
    expect(plain?.vector).toEqual((await model.embed([content.slice(0, contextSize)]))[0]);
  });

  test('averages chunks of about equal length, weighted by tokens', async () => {
    const content = Array.from({ length: 300 }, (_, i) => 5 + ((i * 37) % 200));
    const [actual] = await model.embedTexts([[cls, ...content, sep]], { overflow: 'chunk-average', normalize: false });
    const parts = [content.slice(0, 100), content.slice(100, 200), content.slice(200)];
    const vectors = await model.embed(
      parts.map((part) => [cls, ...part, sep]),
      { normalize: false },
    );
    const expected = Float32Array.from({ length: 64 }, (_, i) => vectors.reduce((s, v) => s + (v[i] as number), 0) / 3);
    expect(actual).toMatchObject({ numTokens: 306, numChunks: 3, numDroppedTokens: 0 });
    expect(maxDifference(actual?.vector as Float32Array, expected)).toBeLessThan(1e-6);
    const [unit] = await model.embed([[cls, ...content, sep]], { overflow: 'chunk-average' });
    expect(Math.hypot(...(unit as Float32Array))).toBeCloseTo(1, 6);
    expect(cosine(unit as Float32Array, expected)).toBeCloseTo(1, 6);
  });
});

describe('vectors', () => {
  test('poolings differ, and agree where their definitions coincide', async () => {
    const vectors = new Map<string, Float32Array>();
    const text = [cls, 50, 60, 70, sep];
    for (const pooling of ['mean', 'cls', 'last', 'max', 'weighted-mean', 'mean-sqrt'] as const) {
      await using other = await loadEmbeddingModel(encoder, { backend: backends[0] as Backend, pooling });
      vectors.set(pooling, (await other.embed([text], { normalize: false }))[0] as Float32Array);
    }
    const mean = vectors.get('mean') as Float32Array;
    const scaled = mean.map((value) => value * Math.sqrt(5));
    expect(maxDifference(vectors.get('mean-sqrt') as Float32Array, scaled)).toBeLessThan(1e-5);
    const distinct = new Set([...vectors.values()].map((vector) => vector.join()));
    expect(distinct.size).toBe(6);
    (vectors.get('max') as Float32Array).forEach((value, i) => expect(value).toBeGreaterThanOrEqual(mean[i] as number));
  });

  test('truncates vectors only of Matryoshka models', async () => {
    const [whole] = await model.embed(['x'], { normalize: false });
    await expect(model.embed(['x'], { dimensions: 8 })).rejects.toThrow('does not declare Matryoshka dimensions');
    expect(await model.embed(['x'], { dimensions: 64, normalize: false })).toEqual([whole]);
    await using other = await loadEmbeddingModel(encoder, { backend: backends[0] as Backend, isMatryoshka: true });
    expect(await other.embed(['x'], { dimensions: 8, normalize: false })).toEqual([whole?.slice(0, 8)]);
    const [unit] = await other.embed(['x'], { dimensions: 8 });
    expect(Math.hypot(...(unit as Float32Array))).toBeCloseTo(1, 6);
    for (const dimensions of [0, 65, 1.5, NaN]) {
      await expect(other.embed(['x'], { dimensions })).rejects.toThrow(ArgumentError);
    }
  });

  test.each([
    ['no tokens', [[]], {}],
    ['an id outside of the vocabulary', [[cls, 232]], {}],
    ['a negative id', [[-1]], {}],
    ['an unknown policy', ['x'], { overflow: 'drop' as 'error' }],
    ['a prompt that is not there', ['x'], { promptName: 'query' }],
    ['two prompts', ['x'], { promptName: 'query', prompt: 'a' }],
  ] as const)('rejects %s', async (_name, texts, options) => {
    await expect(model.embed(texts, options)).rejects.toThrow(ArgumentError);
    expect(await model.embed(['x'])).toHaveLength(1);
  });
});

describe('calls', () => {
  test('concurrent calls run one after the other', async () => {
    const texts = randomTexts(createRng(4), 6, 30);
    const expected = await model.embed(texts);
    const results = await Promise.all(texts.map((text) => model.embed([text])));
    expect(results.flat()).toEqual(expected);
  });

  test('stops between steps when aborted, and remains usable', async () => {
    await using small = await loadEmbeddingModel(encoder, { backend: backends[0] as Backend, maxTexts: 1 });
    const controller = new AbortController();
    let numSteps = 0;
    const onProgress = (): void => {
      numSteps++;
      controller.abort(new Error('enough'));
    };
    const run = small.embed(['x', 'x', 'x'], { signal: controller.signal, onProgress });
    await expect(run).rejects.toThrow('enough');
    expect(numSteps).toBe(1);
    await expect(small.embed(['x'], { signal: controller.signal })).rejects.toThrow('enough');
    expect(await small.embed(['x'])).toEqual(await model.embed(['x']));
  });

  test('the event loop turns while a text of 1 MiB is tokenized', async () => {
    const controller = new AbortController();
    setTimeout(() => controller.abort(new Error('gone')));
    await expect(model.embed(['x '.repeat(1 << 19)], { signal: controller.signal })).rejects.toThrow('gone');
  });

  test('rejects calls after disposal', async () => {
    const other = await loadEmbeddingModel(encoder, { backend: backends[0] as Backend, maxTexts: 1 });
    const running = other.embed(['x', 'x', 'x', 'x']);
    const disposed = other.dispose();
    await expect(running).rejects.toThrow(ReleasedError);
    await disposed;
    await other.dispose();
    await expect(other.embed(['x'])).rejects.toThrow(ReleasedError);
  });
});

describe('loading', () => {
  test('creates a backend of its own', async () => {
    await using own = await loadEmbeddingModel(encoder, { threads: 1 });
    expect(await own.embed(['x'])).toEqual(await model.embed(['x']));
  });

  test('quantizes while loading', async () => {
    await using small = await loadEmbeddingModel(encoder, { backend: backends[0] as Backend, quantize: 'q8_0' });
    expect(small.plan.weightsBytes).toBeLessThan(model.plan.weightsBytes / 2);
    const [vector] = await small.embed(['and the dog, 42 birds!']);
    const [expected] = await model.embed(['and the dog, 42 birds!']);
    // 8-bit weights and activations are off by at most 1/254 of the largest of 32 values, and mostly by far less
    expect(cosine(vector as Float32Array, expected as Float32Array)).toBeGreaterThan(0.99);
  });

  test('does not generate', async () => {
    await expect(loadModel(encoder)).rejects.toThrow('bert, an encoder, which only embeds');
    await expect(loadModel(encoder)).rejects.toThrow(ArgumentError);
  });

  test.each([{ context: 129 }, { context: 0 }, { batchSize: 0.5 }, { maxTexts: 0 }, { pooling: 'sum' as 'max' }])(
    'rejects %j',
    async (options) => {
      await expect(loadEmbeddingModel(encoder, options)).rejects.toThrow(ArgumentError);
    },
  );
});

describe('decoders', () => {
  const names = [
    'llama',
    'gpt2',
    'mistral',
    'qwen3',
    'phi3',
    'mixtral',
    'lfm2',
    'lfm2moe',
    'qwen35',
    'qwen35moe',
    'olmo3',
    'smollm3',
  ];
  const isThere = (name: string): boolean =>
    ['model.gguf', 'golden.json', 'exact.json'].every((file) => archPath(name, file) !== undefined);
  for (const name of names.filter((each) => !isThere(each))) {
    test.skip(`${name}: needs ../shared/data/goldens`, () => {});
  }
  test.each(names.filter(isThere))('%s: last-token vectors give the logits of the goldens', async (name) => {
    const path = archPath(name, 'model.gguf') as string;
    const { prompts } = readJson<{ prompts: { tokens: number[]; positions: number[] }[] }>(
      archPath(name, 'golden.json') as string,
    );
    const { logprobs } = readJson<{ logprobs: string[][] }>(archPath(name, 'exact.json') as string);
    const output = await outputMatrix(path);
    await using model = await loadEmbeddingModel(path, { backend: backends[0] as Backend, pooling: 'last' });
    const vectors = await model.embed(
      prompts.map(({ tokens }) => tokens),
      { normalize: false },
    );
    prompts.forEach(({ tokens, positions }, index) => {
      const expected = decodeFloats(logprobs[index]?.[positions.indexOf(tokens.length - 1)] as string);
      const actual = logSoftmax(output, vectors[index] as Float32Array);
      expect(maxDifference(actual, expected)).toBeLessThan(5e-4);
    });
  });

  test('require a pooling, and reject that of the first token', async () => {
    const path = archPath('llama', 'model.gguf') as string;
    await expect(loadEmbeddingModel(path)).rejects.toThrow('pooling: expected mean | cls | last');
    await expect(loadEmbeddingModel(path, { pooling: 'cls' })).rejects.toThrow('attends only to itself');
    await using model = await loadEmbeddingModel(path, { pooling: 'mean', backend: backends[0] as Backend });
    const [alone, beside] = [await model.embed([[5, 6, 7]]), await model.embed([[9, 9], [5, 6, 7], [4]])];
    expect(beside[1]).toEqual(alone[0]);
  });
});

async function outputMatrix(path: string): Promise<Float32Array> {
  const file = await openGgufFile(path);
  const stored = file.tensors.get('output.weight') ?? file.tensors.get('token_embd.weight');
  if (stored === undefined) throw new Error('no output matrix');
  const bytes = new Uint8Array(stored.sizeBytes);
  await stored.read(bytes);
  await file.close();
  const values = new Float32Array(stored.shape.reduce((product, dim) => product * dim, 1));
  decode(stored.dtype, bytes, values);
  return values;
}

function logSoftmax(matrix: Float32Array, x: Float32Array): Float32Array {
  const logits = Array.from({ length: matrix.length / x.length }, (_, row) =>
    x.reduce((sum, value, i) => sum + value * (matrix[row * x.length + i] as number), 0),
  );
  const max = Math.max(...logits);
  const total = max + Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - max), 0));
  return Float32Array.from(logits, (logit) => logit - total);
}
