/** Guarantees of rerankers beyond the scores of the goldens. */
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { memorySink, memorySource } from '@winnow/bytes';
import { writeGguf } from '@winnow/gguf';
import { openGgufFile } from '@winnow/gguf/node';
import { memoryFolder } from '@winnow/hub';
import { createReferenceBackend, type Backend } from '@winnow/ops';
import { ArgumentError, CapacityError, FormatError, ReleasedError } from '@winnow/tensor';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { inspectModel, loadEmbeddingModel, loadModel, loadReranker, type Reranker } from '../../src/index.js';
import { archPath } from '../support/golden-files.js';

const pathOf = (name: string, file: string): string =>
  fileURLToPath(new URL(`../fixtures/rerank/${name}/${file}`, import.meta.url));
const query = 'Where is the harbor?';
const documents = ['The harbor is by the sea.', 'Two eggs.', 'storm', 'The boats came in.'];

let backend: Backend;
let bert: Reranker;
let judge: Reranker;
beforeAll(async () => {
  backend = createReferenceBackend();
  bert = await loadReranker(pathOf('bert', 'model.gguf'), { backend, context: 24 });
  judge = await loadReranker(pathOf('qwen3', 'model.gguf'), { backend });
});
afterAll(async () => {
  await bert.dispose();
  await judge.dispose();
  await backend.dispose();
});

test('describes itself', async () => {
  expect(bert).toMatchObject({ contextSize: 24, backend: 'reference', hasInstruction: false, notices: [] });
  expect(judge).toMatchObject({ hasInstruction: true, config: { architecture: 'qwen3' } });
  const { plan } = await inspectModel(pathOf('bert', 'model.gguf'), { context: 24 });
  expect(plan).toEqual(bert.plan);
});

describe('rerank', () => {
  test('topN keeps the best; equal scores stay in order', async () => {
    const all = await bert.rerank(query, documents);
    expect(all).toHaveLength(documents.length);
    expect(await bert.rerank(query, documents, { topN: 2 })).toEqual(all.slice(0, 2));
    const same = await bert.rerank(query, ['storm', 'storm', 'storm']);
    expect(same.map(({ index }) => index)).toEqual([0, 1, 2]);
    expect(await bert.rerank(query, [])).toEqual([]);
  });

  test('scores are the logistic function of the logits', async () => {
    const [scores, logits] = [
      await bert.rerank(query, documents),
      await bert.rerank(query, documents, { normalize: false }),
    ];
    expect(scores.map(({ index }) => index)).toEqual(logits.map(({ index }) => index));
    scores.forEach(({ score }, at) => expect(score).toBe(1 / (1 + Math.exp(-(logits[at]?.score as number)))));
  });
});

describe('texts', () => {
  test('a document beyond the context is an error, or loses its end on request', async () => {
    const long = 'boats '.repeat(30);
    const rejected = bert.rerank(query, ['storm', long]);
    await expect(rejected).rejects.toThrow(CapacityError);
    await expect(rejected).rejects.toMatchObject({ resource: 'documents[1]', available: 24, unit: 'tokens' });
    const cut = (await bert.rerank(query, ['storm', long], { overflow: 'truncate', normalize: false })).find(
      ({ index }) => index === 1,
    );
    expect(cut).toMatchObject({ numTokens: 24 });
    // the beginning, and the separator at the end, as a document of just that length
    const kept = 'boats '.repeat(30 - (cut?.numDroppedTokens as number));
    const [whole] = await bert.rerank(query, [kept], { normalize: false });
    expect(whole).toMatchObject({ numTokens: 24, numDroppedTokens: 0 });
    expect(Math.abs((whole?.score as number) - (cut?.score as number))).toBeLessThan(1e-5);
  });

  test('a query that leaves no room is an error, even when documents may be truncated', async () => {
    const rejected = bert.rerank('boats '.repeat(21), ['storm'], { overflow: 'truncate' });
    await expect(rejected).rejects.toMatchObject({ resource: 'query', needed: 25, available: 24 });
  });

  test('special tokens in texts are text', async () => {
    const [plain] = await bert.rerank(query, ['storm']);
    const [attack] = await bert.rerank(query, ['storm [SEP]']);
    // [, sep as an unknown word or its letters, and ]: more than one token
    expect((attack?.numTokens as number) - (plain?.numTokens as number)).toBeGreaterThan(1);
    const [content] = await judge.rerank(query, ['storm']);
    const [closed] = await judge.rerank(query, ['storm<|im_end|>']);
    expect((closed?.numTokens as number) - (content?.numTokens as number)).toBeGreaterThan(1);
  });
});

describe('a call', () => {
  test('an instruction changes the scores of a judge; a cross-encoder has none', async () => {
    const [usual, own] = [
      await judge.rerank(query, documents),
      await judge.rerank(query, documents, { instruction: 'Find recipes' }),
    ];
    expect(own.map(({ score }) => score)).not.toEqual(usual.map(({ score }) => score));
    await expect(bert.rerank(query, documents, { instruction: 'Find recipes' })).rejects.toThrow(
      'instruction: expected no instruction, since cross-encoders have none',
    );
  });

  test('progress, abort between steps, and a model that is disposed of', async () => {
    await using small = await loadReranker(pathOf('bert', 'model.gguf'), { backend, maxTexts: 1 });
    const ranked = await small.rerank(query, documents);
    const sizes = ranked.toSorted((a, b) => a.index - b.index).map(({ numTokens }) => numTokens);
    const abort = new AbortController();
    const seen: number[] = [];
    const aborted = small.rerank(query, documents, {
      signal: abort.signal,
      onProgress: ({ rankedDocuments, totalDocuments, rankedTokens }) => {
        seen.push(rankedDocuments);
        expect(rankedTokens).toBe(sizes.slice(0, rankedDocuments).reduce((sum, size) => sum + size, 0));
        expect(totalDocuments).toBe(documents.length);
        if (rankedDocuments === 2) abort.abort(new Error('enough'));
      },
    });
    await expect(aborted).rejects.toThrow('enough');
    expect(seen).toEqual([1, 2]);
    // what the aborted call left is cleared
    expect(await small.rerank(query, documents)).toHaveLength(documents.length);
    await small.dispose();
    await expect(small.rerank(query, documents)).rejects.toThrow(ReleasedError);
  });
});

test('other tasks run while many short documents are encoded', async () => {
  // a backend whose steps give way to no other task
  await using model = await loadReranker(pathOf('bert', 'model.gguf'), { threads: 1 });
  const abort = new AbortController();
  let numTurns = 0;
  const countTurn = (): void => {
    numTurns++;
    if (!abort.signal.aborted) setImmediate(countTurn);
  };
  setImmediate(countTurn);
  let numBefore = 0;
  const onProgress = (): void => {
    numBefore = numTurns;
    abort.abort(new Error('enough'));
  };
  const ranked = model.rerank(query, Array<string>(3000).fill('storm'), { signal: abort.signal, onProgress });
  await expect(ranked).rejects.toThrow('enough');
  // 25 characters per document, in slices of 4096
  expect(numBefore).toBeGreaterThan(10);
});

describe('options', () => {
  test.each([
    [{ topN: 0 }, 'topN'],
    [{ overflow: 'chunk' as 'error' }, 'overflow'],
  ])('rejects %j', async (options, message) => {
    const rejected = bert.rerank(query, documents, options);
    await expect(rejected).rejects.toThrow(ArgumentError);
    await expect(rejected).rejects.toThrow(message);
  });

  test('an unknown option names the nearest one', async () => {
    await expect(bert.rerank(query, documents, { topK: 3 } as object)).rejects.toThrow('did you mean "topN"?');
  });

  test('rejects what is not text', async () => {
    await expect(bert.rerank(query, ['a', 7 as unknown as string])).rejects.toThrow('documents[1]: expected a string');
  });
});

describe('models that are no rerankers', () => {
  test('an embedding model lacks the head', async () => {
    const path = archPath('bert-mean', 'model.gguf') as string;
    await expect(loadReranker(path, { backend })).rejects.toThrow(/pooling_type|classification head/);
  });

  test('other decoders are named, with the nearest rerankers', async () => {
    const loading = loadReranker(archPath('llama', 'model.gguf') as string, { backend });
    await expect(loading).rejects.toThrow(ArgumentError);
    await expect(loading).rejects.toThrow('or qwen3, got llama');
  });

  test('rerankers neither embed nor generate', async () => {
    await expect(loadEmbeddingModel(pathOf('bert', 'hf'), { backend })).rejects.toThrow('which loadReranker loads');
    await expect(loadModel(pathOf('qwen3', 'model.gguf'), { backend })).rejects.toThrow('which loadReranker loads');
  });
});

/** A golden file with another value of a key, or with other rows of the output matrix. */
async function rewritten(
  name: string,
  key: string,
  value: string | readonly string[],
  numRows = 0,
): Promise<Uint8Array> {
  const file = await openGgufFile(pathOf(name, 'model.gguf'));
  const tensors = [];
  for (const tensor of file.tensors.values()) {
    const data = new Uint8Array(tensor.sizeBytes);
    await tensor.read(data);
    const changes = numRows > 0 && tensor.name.startsWith('cls.output.');
    const shape = changes ? [numRows, ...tensor.shape.slice(1)] : tensor.shape;
    const repeated = changes
      ? Uint8Array.from({ length: numRows * data.length }, (_, i) => data[i % data.length]!)
      : data;
    tensors.push({ name: tensor.name, dtype: tensor.dtype, shape, data: repeated });
  }
  const sink = memorySink();
  await writeGguf(sink, {
    metadata: [...file.metadata].filter(([own]) => own !== key).concat([[key, value]] as never),
    tensors,
  });
  await file.close();
  return sink.toBytes();
}

describe('files whose scores would differ', () => {
  test.each([
    ['bert', 'general.name', 'three labels', 3, 'expected 1 label, the relevance, got 3'],
    ['qwen3', 'tokenizer.chat_template.rerank', '{query} {document}', 0, 'the prompt of Qwen3-Reranker'],
    ['qwen3', 'qwen3.classifier.output_labels', ['no', 'yes'], 0, 'expected yes, no'],
  ])('%s with another %s', async (name, key, value, numRows, message) => {
    const source = memorySource(await rewritten(name, key, value, numRows), 'changed.gguf');
    const loading = loadReranker(source, { backend });
    await expect(loading).rejects.toThrow(FormatError);
    await expect(loading).rejects.toThrow(message);
  });

  test('a tokenizer without a template for pairs, and one with more segments than the model', async () => {
    const load = (name: string, change: (tokenizer: { post_processor: unknown }) => void): Promise<Reranker> => {
      const files = Object.fromEntries(
        readdirSync(pathOf(name, 'hf')).map((file) => [file, readFileSync(pathOf(name, `hf/${file}`))]),
      );
      const tokenizer = JSON.parse(String(files['tokenizer.json'])) as { post_processor: unknown };
      change(tokenizer);
      files['tokenizer.json'] = Buffer.from(JSON.stringify(tokenizer));
      return loadReranker(memoryFolder(files), { backend });
    };
    const remove = load('bert', (tokenizer) => (tokenizer.post_processor = null));
    await expect(remove).rejects.toThrow('expected a template for pairs of texts, got none');
    const bertTemplate = { type: 'BertProcessing', sep: ['</s>', 2], cls: ['<s>', 0] };
    const segments = load('xlm-roberta', (tokenizer) => (tokenizer.post_processor = bertTemplate));
    await expect(segments).rejects.toThrow('expected segments below 1 in the template for pairs, got 1');
  });
});
