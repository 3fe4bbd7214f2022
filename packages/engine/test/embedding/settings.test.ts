/** The settings of sentence-transformers folders on a tiny encoder: pooling, prompts, sizes, errors. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { memoryFolder, type HubFiles } from '@winnow/hub';
import { createReferenceBackend, type Backend } from '@winnow/ops';
import { ArgumentError, FormatError } from '@winnow/tensor';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { loadEmbeddingModel, type EmbeddingLoadOptions, type EmbeddingModel } from '../../src/index.js';
import { archPath } from '../support/golden-files.js';
import { wordPieceTokenizer } from '../support/wide-model.js';

let backend: Backend;
beforeAll(() => {
  backend = createReferenceBackend();
});
afterAll(() => backend.dispose());

const hf = archPath('modern-bert', 'hf') as string;
const weights = readFileSync(join(hf, 'model.safetensors'));
const config = JSON.parse(readFileSync(join(hf, 'config.json'), 'utf8')) as object;

/** A vocabulary of words; other ids are never used. */
const words = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'a', 'b', 'query', ':', 'A'];

const transformer = { idx: 0, name: '0', path: '', type: 'sentence_transformers.models.Transformer' };
const pooling = { idx: 1, name: '1', path: '1_Pooling', type: 'sentence_transformers.models.Pooling' };
const normalize = { idx: 2, name: '2', path: '2_Normalize', type: 'sentence_transformers.models.Normalize' };

interface Parts {
  readonly config?: object;
  readonly modules?: readonly object[];
  readonly pooling?: object;
  readonly bert?: object;
  readonly sentence?: object;
}

function folder(parts: Parts): HubFiles {
  const files: Record<string, Uint8Array | string> = {
    'config.json': JSON.stringify({ ...config, ...parts.config }),
    'model.safetensors': weights,
    'tokenizer.json': JSON.stringify(wordPieceTokenizer(words)),
    'modules.json': JSON.stringify(parts.modules ?? [transformer, pooling]),
    '1_Pooling/config.json': JSON.stringify(parts.pooling ?? { pooling_mode_mean_tokens: true }),
  };
  if (parts.bert !== undefined) files['sentence_bert_config.json'] = JSON.stringify(parts.bert);
  if (parts.sentence !== undefined) files['config_sentence_transformers.json'] = JSON.stringify(parts.sentence);
  return memoryFolder(files);
}

const open = (parts: Parts, options: EmbeddingLoadOptions = {}): Promise<EmbeddingModel> =>
  loadEmbeddingModel(folder(parts), { backend, ...options });

const norm = (vector: Float32Array | undefined): number => Math.hypot(...(vector as Float32Array));

test.each([
  [{ pooling_mode_cls_token: true, pooling_mode_mean_tokens: false }, 'cls'],
  [{ pooling_mode_mean_tokens: true, word_embedding_dimension: 64 }, 'mean'],
  [{ pooling_mode_max_tokens: true }, 'max'],
  [{ pooling_mode_mean_sqrt_len_tokens: true }, 'mean-sqrt'],
  [{ pooling_mode_weightedmean_tokens: true }, 'weighted-mean'],
  [{ pooling_mode_lasttoken: true, include_prompt: true }, 'last'],
  [{ pooling_mode: 'lasttoken' }, 'last'],
] as const)('pooling %j', async (settings, expected) => {
  await using model = await open({ pooling: settings });
  expect(model.pooling).toBe(expected);
  await using plain = await loadEmbeddingModel(hf, { backend, pooling: expected });
  expect(await model.embed(['a b'])).toEqual(await plain.embed([[2, 5, 6, 3]]));
  await using other = await open({ pooling: settings }, { pooling: 'max' });
  expect(other.pooling).toBe('max');
});

test.each([
  ['two modes', { pooling: { pooling_mode_mean_tokens: true, pooling_mode_cls_token: true } }],
  ['no mode', { pooling: { pooling_mode_mean_tokens: false } }],
  ['an unknown mode', { pooling: { pooling_mode_sum_tokens: true } }],
  ['an unknown name', { pooling: { pooling_mode: 'sum' } }],
  [
    'a dense layer',
    { modules: [transformer, pooling, { name: '2', path: '', type: 'sentence_transformers.models.Dense' }] },
  ],
  ['broken prompts', { sentence: { prompts: { query: 1 } } }],
  ['broken sizes', { bert: { max_seq_length: 'long' } }],
  ['broken dimensions', { config: { matryoshka_dimensions: [8, 'x'] } }],
] as const)('rejects %s', async (_name, parts) => {
  await expect(open(parts)).rejects.toThrow(FormatError);
});

test('prompts by name, as text, and by default', async () => {
  const prompts = { query: 'query: ', document: '' };
  await using model = await open({ sentence: { prompts } });
  expect(model.prompts).toEqual(prompts);
  const [expected] = await model.embed(['query: a']);
  expect(await model.embed(['a'], { promptName: 'query' })).toEqual([expected]);
  expect(await model.embed(['a'], { prompt: 'query: ' })).toEqual([expected]);
  expect([...model.encodeText('a', { promptName: 'query' })]).toEqual([2, 7, 8, 5, 3]);
  expect(await model.embed(['a'])).not.toEqual([expected]);
  await expect(model.embed(['a'], { promptName: 'toString' })).rejects.toThrow('query | document');
  await using usual = await open({ sentence: { prompts, default_prompt_name: 'query' } });
  expect(await usual.embed(['a'])).toEqual([expected]);
  expect(await usual.embed(['a'], { prompt: '' })).toEqual(await model.embed(['a']));
});

test('a pooling that excludes the prompt rejects texts with a prompt', async () => {
  await using model = await open({ pooling: { pooling_mode_mean_tokens: true, include_prompt: false } });
  expect(await model.embed(['a'])).toHaveLength(1);
  await expect(model.embed(['a'], { prompt: 'b ' })).rejects.toThrow(ArgumentError);
});

test('context size, lower case, dimensions', async () => {
  await using model = await open({
    bert: { max_seq_length: 16, do_lower_case: true },
    sentence: { truncate_dim: 32 },
    config: { matryoshka_dimensions: [8, 32] },
  });
  expect(model).toMatchObject({ contextSize: 16, dimensions: 32, matryoshkaDimensions: [8, 32] });
  expect([...model.encodeText('A')]).toEqual([2, 5, 3]);
  const [whole] = await model.embed(['a'], { dimensions: 64, normalize: false });
  expect(await model.embed(['a'], { normalize: false })).toEqual([whole?.slice(0, 32)]);
  expect(await model.embed(['a'], { dimensions: 8, normalize: false })).toEqual([whole?.slice(0, 8)]);
  await expect(model.embed(['a'], { dimensions: 9 })).rejects.toThrow('8 | 32 | 64');
  await using larger = await open({ bert: { max_seq_length: 16 } }, { context: 40 });
  expect(larger.contextSize).toBe(40);
});

test('vectors have length 1 unless the model was trained for dot products', async () => {
  await using cosines = await open({ modules: [transformer, pooling] });
  await using dots = await open({ sentence: { similarity_fn_name: 'dot' } });
  await using both = await open({
    modules: [transformer, pooling, normalize],
    sentence: { similarity_fn_name: 'dot' },
  });
  expect(norm((await cosines.embed(['a']))[0])).toBeCloseTo(1, 6);
  expect(norm((await both.embed(['a']))[0])).toBeCloseTo(1, 6);
  expect(norm((await dots.embed(['a']))[0])).toBeGreaterThan(1.5);
  expect(norm((await dots.embed(['a'], { normalize: true }))[0])).toBeCloseTo(1, 6);
});
