/** ColBERT models in the layouts of Stanford's library, PyLate and sentence-transformers, against float64 vectors of the latter. */
import { readBytes } from '@winnow/bytes';
import { memoryFolder, type HubFiles } from '@winnow/hub';
import { localFolder } from '@winnow/hub/node';
import { type Backend } from '@winnow/ops';
import { describe, expect, test } from 'vitest';
import { loadEmbeddingModel, maxSim, type EmbeddingModel } from '../../src/index.js';
import { useBackends } from '../support/backends.js';
import { archPath, decodeFloats, maxDifference, multiVectorNames, readJson } from '../support/golden-files.js';

interface Row {
  readonly text: string;
  readonly tokens: readonly number[];
  readonly vectors: string;
}
type Role = 'query' | 'document';
type Golden = Readonly<Record<Role, readonly Row[]>>;

/** As for vectors of texts. */
const limit = 5e-4;
const roles = ['query', 'document'] as const;
const outputs = ['multiVector'] as const;
const queryLength = 24;

const backends = useBackends();
const load = (source: string | HubFiles, options = {}, backend = 'WebAssembly'): Promise<EmbeddingModel> =>
  loadEmbeddingModel(source, { backend: backends[backend] as Backend, ...options });

const folderOf = (name: string): string => archPath(name, 'hf') as string;
const goldenOf = (name: string): Golden => readJson<Golden>(archPath(name, 'golden.json') as string);

/** The files of a folder in memory, with other JSON files. */
async function changedFolder(name: string, changes: Readonly<Record<string, object | undefined>>): Promise<HubFiles> {
  const files = localFolder(folderOf(name));
  const kept: Record<string, Uint8Array | string> = {};
  for (const each of await files.list()) {
    if (Object.hasOwn(changes, each)) continue;
    const source = await files.open(each);
    kept[each] = await readBytes(source);
    await source.close();
  }
  for (const [each, json] of Object.entries(changes)) if (json !== undefined) kept[each] = JSON.stringify(json);
  return memoryFolder(kept);
}

const vectorsOf = async (model: EmbeddingModel, texts: readonly string[], promptName?: Role) =>
  (await model.embedTexts(texts, { outputs, ...(promptName && { promptName }) })).map(
    ({ multiVector = [] }) => multiVector,
  );

async function expectGolden(model: EmbeddingModel, golden: Golden): Promise<void> {
  for (const role of roles) {
    const rows = golden[role];
    const found = await vectorsOf(
      model,
      rows.map(({ text }) => text),
      role,
    );
    for (const [index, { vectors }] of rows.entries()) {
      const actual = Float32Array.from((found[index] ?? []).flatMap((vector) => [...vector]));
      expect(maxDifference(actual, decodeFloats(vectors))).toBeLessThan(limit);
    }
  }
}

describe.each(Object.values(multiVectorNames).flat())('%s', (name) => {
  const golden = goldenOf(name);

  test.each(['WebAssembly', 'reference'])('vectors of queries and documents on the %s backend', async (backend) => {
    await using model = await load(folderOf(name), {}, backend);
    expect([model.tokenOutputs, model.dimensions]).toEqual([outputs, 20]);
    expect(Object.keys(model.prompts)).toEqual(roles);
    await expectGolden(model, golden);
  });

  test('tokens begin with a marker; mask tokens fill up queries', async () => {
    await using model = await load(folderOf(name));
    for (const role of roles) {
      for (const { text, tokens } of golden[role]) {
        const ids = [...model.encodeText(text, { promptName: role })];
        const filled = role === 'query' ? Array<number>(queryLength - ids.length).fill(tokens.at(-1) as number) : [];
        expect([...ids, ...filled]).toEqual(tokens);
      }
    }
  });

  test('a text has the same vectors alone and in a step, and is a document without a name', async () => {
    await using model = await load(folderOf(name), { maxTexts: 2 });
    const texts = golden.document.map(({ text }) => text);
    const together = await vectorsOf(model, texts);
    for (const [index, text] of texts.entries()) {
      expect(await vectorsOf(model, [text], 'document')).toEqual(together.slice(index, index + 1));
    }
    const [query] = await vectorsOf(model, ['boats'], 'query');
    expect(maxSim(query as Float32Array[], query as Float32Array[])).toBeCloseTo(queryLength, 4);
  });
});

const names = {
  config: 'config_sentence_transformers.json',
  modules: 'modules.json',
  bert: 'sentence_bert_config.json',
};
const stored = readJson<Record<string, unknown>>(`${folderOf('colbert-modern')}/${names.config}`);

describe('settings', () => {
  const dense = { idx: 1, name: '1', path: '1_Dense', type: 'sentence_transformers.base.modules.dense.Dense' };
  const modules = [{ idx: 0, name: '0', path: '', type: 'sentence_transformers.models.Transformer' }, dense];
  const mask = { idx: 2, name: '2', path: '2_MultiVectorMask', type: 'x.MultiVectorMask' };

  test('those of sentence-transformers are in the files of the modules', async () => {
    const files = await changedFolder('colbert-modern', {
      [names.modules]: [...modules, mask, { idx: 3, name: '3', path: '3_Normalize', type: 'x.Normalize' }],
      '2_MultiVectorMask/config.json': { skiplist_words: stored['skiplist_words'], skiplist_tasks: ['document'] },
      [names.bert]: { query_expansion: { strategy: 'fixed', attend: true, length: queryLength }, document_length: 200 },
      [names.config]: { prompts: { query: '[Q] ', document: '[D] ' }, similarity_fn_name: 'maxsim' },
    });
    await using model = await load(files);
    await expectGolden(model, goldenOf('colbert-modern'));
  });

  test('without artifact.metadata those of ColBERT apply', async () => {
    await using model = await load(await changedFolder('colbert', { 'artifact.metadata': undefined }));
    const [query] = await vectorsOf(model, ['boats'], 'query');
    expect(query).toHaveLength(32);
    const [document] = await vectorsOf(model, ['boats.']);
    expect(document).toHaveLength(4);
  });

  test('queries that are not filled up, and documents with all of their words', async () => {
    const config = { ...stored, do_query_expansion: false, skiplist_words: [] };
    await using model = await load(await changedFolder('colbert-modern', { [names.config]: config }));
    for (const role of roles) {
      const [vectors] = await vectorsOf(model, ['in.'], role);
      expect(vectors).toHaveLength(model.encodeText('in.', { promptName: role }).length);
    }
  });

  test.each([
    [names.modules, [...modules, { ...dense, name: '2' }], 'expected one Dense module for vectors of tokens, got 2'],
    [
      names.config,
      { ...stored, query_expansion: { strategy: 'some', length: 8 } },
      'expected fixed or min, found some',
    ],
    ['artifact.metadata', { query_maxlen: 'many' }, 'query_maxlen'],
  ] as const)('refuses other ones in %s', async (file, content, message) => {
    const name = file === 'artifact.metadata' ? 'colbert' : 'colbert-modern';
    await expect(load(await changedFolder(name, { [file]: content }))).rejects.toThrow(message);
  });
});

describe('prompts and prefixes', () => {
  test('texts with a prompt of another name are documents', async () => {
    const config = { ...stored, prompts: { passage: 'in. ' } };
    await using model = await load(await changedFolder('colbert-modern', { [names.config]: config }));
    const options = { promptName: 'passage' };
    expect(model.encodeText('boats', options)).toEqual(model.encodeText('in. boats', { promptName: 'document' }));
    const [passage] = await model.embedTexts(['boats'], { outputs, ...options });
    expect(passage?.multiVector).toEqual((await vectorsOf(model, ['in. boats'], 'document'))[0]);
    // `[CLS] [D] boats [SEP]`: words that are skipped have no vector
    expect(passage?.multiVector).toHaveLength(4);
  });

  test('a prefix that is no token is text', async () => {
    const config = { ...stored, query_prefix: 'query: ', document_prefix: '' };
    await using model = await load(await changedFolder('colbert-modern', { [names.config]: config }));
    const ids = (text: string, promptName: Role): number[] => [...model.encodeText(text, { promptName })];
    expect(ids('boats', 'query')).toEqual(ids('query: boats', 'document'));
  });
});

describe('refuses', () => {
  test('vectors of whole texts, other prompts, and a context that is smaller than a query', async () => {
    await using model = await load(folderOf('colbert'));
    await expect(model.embed(['boats'])).rejects.toThrow('outputs: expected multiVector in embedTexts, since');
    await expect(model.embedTexts(['boats'], { outputs, prompt: 'x' })).rejects.toThrow('prompt: expected none');
    const unknown = model.embedTexts(['boats'], { outputs, promptName: 'passage' });
    await expect(unknown).rejects.toThrow('promptName: expected query | document, got passage');
    await expect(model.embedTexts(['boats'], { outputs, dimensions: 8 })).rejects.toThrow('dimensions: expected 20');
    await expect(load(folderOf('colbert'), { context: 16 })).rejects.toThrow('context: expected at least 24');
  });

  test('texts that are too long, unless they are truncated after the marker', async () => {
    await using model = await load(folderOf('colbert'), { context: 30 });
    const long = 'boats '.repeat(40);
    for (const [role, size] of [
      ['query', queryLength],
      ['document', 30],
    ] as const) {
      const options = { outputs, promptName: role };
      await expect(model.embedTexts([long], options)).rejects.toThrow(`${size} tokens`);
      const [cut] = await model.embedTexts([long], { ...options, overflow: 'truncate' });
      expect([cut?.multiVector?.length, cut?.numDroppedTokens]).toEqual([size, 43 - size]);
      const [chunks] = await model.embedTexts([long], { ...options, overflow: 'chunk-average' });
      expect(chunks?.numChunks).toBe(2);
    }
  });
});
