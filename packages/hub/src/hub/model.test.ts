import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { readBytes } from '@winnow/bytes';
import { ArgumentError, FormatError, IoError } from '@winnow/tensor';
import { characterAt, lastCharacter, sharedDataPath } from '@winnow/test-utils';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { blobFolder, MAX_CONFIG_BYTES, memoryFolder, openHubFolder, type HubModel } from '../index.js';
import { localFolder } from '../index.node.js';

const open = (files: Record<string, unknown>): Promise<HubModel> =>
  openHubFolder(
    memoryFolder(
      Object.fromEntries(
        Object.entries({ 'config.json': {}, ...files }).map(([name, value]) => [
          name,
          typeof value === 'string' || value instanceof Uint8Array ? value : JSON.stringify(value),
        ]),
      ),
    ),
  );

describe('openHubFolder', () => {
  it('returns the parts of a language model', async () => {
    const model = await open({
      'config.json': { model_type: 'llama', rope_scaling: { factor: 8 }, eos_token_id: [1, 2] },
      'generation_config.json': { temperature: 0.6 },
      'tokenizer_config.json': { bos_token: '<s>', chat_template: 'plain' },
      'special_tokens_map.json': { bos_token: '<s>' },
      'tokenizer.json': { version: '1.0' },
      'model.safetensors': new Uint8Array(3),
    });
    expect(model.config.string('model_type')).toBe('llama');
    expect(model.config.object('rope_scaling').number('factor')).toBe(8);
    expect(model.config.numbers('eos_token_id')).toEqual([1, 2]);
    expect(model.generationConfig?.number('temperature')).toBe(0.6);
    expect(model.tokenizerConfig?.optionalString('bos_token')).toBe('<s>');
    expect(model.specialTokensMap?.keys()).toEqual(['bos_token']);
    expect([model.hasTokenizerJson, (await model.readTokenizerJson())?.string('version')]).toEqual([true, '1.0']);
    expect(model.chatTemplate).toBe('plain');
    expect(model.weightFiles).toEqual({ kind: 'single', name: 'model.safetensors' });
    expect((await model.files.open('model.safetensors')).sizeBytes).toBe(3);
  });

  it('omits parts that are missing', async () => {
    const model = await open({});
    expect(model).toMatchObject({
      generationConfig: undefined,
      tokenizerConfig: undefined,
      specialTokensMap: undefined,
      chatTemplate: undefined,
      sentenceTransformers: undefined,
      weightFiles: undefined,
      hasTokenizerJson: false,
    });
    expect(await model.readTokenizerJson()).toBeUndefined();
  });

  it('requires a config.json', async () => {
    await expect(openHubFolder(memoryFolder({ 'a.txt': '', 'b.bin': '' }, 'dir'))).rejects.toMatchObject({
      name: 'FormatError',
      source: 'dir',
      field: 'config.json',
      message: expect.stringMatching(/a\.txt, b\.bin/),
    });
  });

  it.each([
    ['the single file', { 'model.safetensors': '', 'model.safetensors.index.json': '{}' }, 'single model.safetensors'],
    ['the index', { 'model.safetensors.index.json': '{"a":1}', 'model-1.safetensors': '' }, 'sharded {"a":1}'],
    ['the only model', { 'x.safetensors': '', 'sparse_linear.safetensors': '' }, 'single x.safetensors'],
    ['none of several', { 'a.safetensors': '', 'b.safetensors': '' }, 'undefined'],
    ['none of another kind', { 'pytorch_model.bin': '', 'sub/x.safetensors': '' }, 'undefined'],
  ])('finds the weights in %s', async (_, files, expected) => {
    const { weightFiles: found } = await open(files);
    expect(
      found === undefined ? 'undefined' : `${found.kind} ${found.kind === 'single' ? found.name : found.indexJson}`,
    ).toBe(expected);
  });
});

describe('chat templates', () => {
  it('are read from every file that may contain them', async () => {
    const named = [
      { name: 'default', template: 'd' },
      { name: 'tool_use', template: 't' },
    ];
    const templates = async (files: Record<string, unknown>): Promise<unknown> => {
      const { chatTemplate, chatTemplates } = await open(files);
      return [chatTemplate, Object.fromEntries(chatTemplates)];
    };
    expect(await templates({ 'tokenizer_config.json': { chat_template: named } })).toEqual([
      'd',
      { default: 'd', tool_use: 't' },
    ]);
    expect(await templates({ 'tokenizer_config.json': { chat_template: named.slice(1) } })).toEqual([
      undefined,
      { tool_use: 't' },
    ]);
    expect(await templates({ 'chat_template.json': { chat_template: 'p' } })).toEqual(['p', { default: 'p' }]);
    expect(
      await templates({
        'chat_template.json': { chat_template: 'p' },
        'tokenizer_config.json': { chat_template: named },
        'chat_template.jinja': 'j',
        'additional_chat_templates/rag.jinja': 'r',
        'additional_chat_templates/sub/x.jinja': 'x',
      }),
    ).toEqual(['j', { default: 'j', tool_use: 't', rag: 'r' }]);
    await expect(templates({ 'tokenizer_config.json': { chat_template: 3 } })).rejects.toMatchObject({
      field: 'chat_template',
    });
    await expect(templates({ 'tokenizer_config.json': { chat_template: [{ name: 'x' }] } })).rejects.toMatchObject({
      source: 'tokenizer_config.json',
      field: 'chat_template[0]',
    });
  });
});

describe('sentence-transformers', () => {
  it('modules and pooling are read', async () => {
    const modules = [
      { idx: 0, name: '0', path: '', type: 'sentence_transformers.models.Transformer' },
      { idx: 1, name: '1', path: '1_Pooling', type: 'sentence_transformers.models.Pooling' },
      { idx: 2, name: '2', path: '2_Normalize', type: 'sentence_transformers.models.Normalize' },
    ];
    const { sentenceTransformers: found } = await open({
      'modules.json': modules,
      '1_Pooling/config.json': { pooling_mode_cls_token: true },
      'sentence_bert_config.json': { max_seq_length: 256 },
      'config_sentence_transformers.json': { prompts: { query: 'q: ' } },
    });
    expect(found?.modules.map(({ path, config }) => [path, config?.keys()])).toEqual([
      ['', undefined],
      ['1_Pooling', ['pooling_mode_cls_token']],
      ['2_Normalize', undefined],
    ]);
    expect(found?.pooling?.boolean('pooling_mode_cls_token')).toBe(true);
    expect(found?.bertConfig?.integer('max_seq_length')).toBe(256);
    expect(found?.config?.object('prompts').string('query')).toBe('q: ');
    for (const path of ['../x', '/etc', 'a\\b']) {
      await expect(open({ 'modules.json': [{ ...modules[0], path }] })).rejects.toMatchObject({ field: '[0].path' });
    }
    await expect(open({ 'modules.json': {} })).rejects.toBeInstanceOf(FormatError);
    await expect(open({ 'modules.json': [3] })).rejects.toMatchObject({ source: 'modules.json', field: '[0]' });
  });
});

describe('broken files', () => {
  it('above the size limit are rejected before they are read', async () => {
    const size = MAX_CONFIG_BYTES + 1;
    const files = memoryFolder({ 'config.json': new Uint8Array(size) });
    await expect(openHubFolder(files)).rejects.toMatchObject({
      name: 'FormatError',
      source: 'config.json',
      field: 'size',
    });
  });

  it('that are not UTF-8 are rejected', async () => {
    await expect(open({ 'config.json': Uint8Array.of(0x7b, 0xff, 0x7d) })).rejects.toMatchObject({ field: 'text' });
  });

  it('throw only FormatError', async () => {
    const base = JSON.stringify({
      model_type: 'llama',
      rope_scaling: { factor: 8 },
      list: [1, 'x', null, true, -1.5e3],
    });
    await fc.assert(
      fc.asyncProperty(
        fc.nat(base.length),
        fc.nat(6),
        fc.string({ unit: fc.nat(lastCharacter).map(characterAt), maxLength: 3 }),
        async (at, cut, piece) => {
          try {
            await open({ 'config.json': base.slice(0, at) + piece + base.slice(at + cut) });
          } catch (error) {
            expect(error).toBeInstanceOf(FormatError);
            expect((error as FormatError).source).toBe('config.json');
            expect((error as FormatError).byteOffset).toBeTypeOf('number');
          }
        },
      ),
      { numRuns: 1000, seed: 11 },
    );
  });
});

describe('folders', () => {
  it('blobs', async () => {
    const files = blobFolder(new Map([['config.json', new Blob(['{"a":1}'])]]));
    expect((await openHubFolder(files)).config.integer('a')).toBe(1);
    await expect(files.open('x')).rejects.toBeInstanceOf(IoError);
    expect(() => blobFolder(new Map([['../x', new Blob([])]]))).toThrow(ArgumentError);
  });

  describe('on the disk', () => {
    let folder: string;
    beforeEach(async () => {
      folder = await mkdtemp(join(tmpdir(), 'winnow-folder-'));
      await mkdir(join(folder, 'model', 'sub'), { recursive: true });
      await mkdir(join(folder, 'model', '.cache'));
      await writeFile(join(folder, 'outside.json'), '{"model_type":"x"}');
      await writeFile(join(folder, 'model', 'sub', 'a.txt'), 'abc');
      await writeFile(join(folder, 'model', '.cache', 'b'), '');
      await symlink('../outside.json', join(folder, 'model', 'config.json'));
      await symlink('../nowhere', join(folder, 'model', 'gone.json'));
      await symlink('..', join(folder, 'model', 'loop'));
    });
    afterEach(() => rm(folder, { recursive: true, force: true }));

    it('lists files and links to files', async () => {
      const files = localFolder(join(folder, 'model'));
      expect(await files.list()).toEqual(['config.json', 'sub/a.txt']);
      expect(
        await Promise.all(
          ['config.json', 'sub/a.txt', 'sub', 'gone.json', '../outside.json', ''].map((name) => files.has(name)),
        ),
      ).toEqual([true, true, false, false, false, false]);
      expect((await openHubFolder(files)).config.string('model_type')).toBe('x');
      const source = await files.open('sub/a.txt');
      expect(new TextDecoder().decode(await readBytes(source))).toBe('abc');
      await source.close();
      await expect(files.open('../outside.json')).rejects.toBeInstanceOf(ArgumentError);
      await expect(files.open('none')).rejects.toBeInstanceOf(IoError);
    });

    it('reports a missing folder', async () => {
      await expect(openHubFolder(localFolder(join(folder, 'none')))).rejects.toBeInstanceOf(IoError);
    });
  });
});

const stories = sharedDataPath('data', 'models', 'stories260K', 'hf');
describe.skipIf(stories === undefined)('stories260K (needs shared/data/models)', () => {
  it('opens', async () => {
    const model = await openHubFolder(localFolder(stories as string));
    expect(model.config.integer('num_hidden_layers')).toBe(5);
    expect(model.config.optionalObject('rope_scaling')).toBeUndefined();
    expect(model.generationConfig?.integer('eos_token_id')).toBe(2);
    expect((await model.readTokenizerJson())?.object('model').string('type')).toBe('BPE');
    expect(model.weightFiles).toEqual({ kind: 'single', name: 'model.safetensors' });
  });
});

const minilm = sharedDataPath('data', 'tokenizers', 'minilm-tokenizer');
describe.skipIf(minilm === undefined)('MiniLM (needs shared/data/tokenizers/minilm-tokenizer)', () => {
  it('opens, with its sentence-transformers modules', async () => {
    const model = await openHubFolder(localFolder(minilm as string));
    expect(model.config.number('layer_norm_eps')).toBe(1e-12);
    expect(model.sentenceTransformers?.modules).toHaveLength(3);
    expect(model.sentenceTransformers?.bertConfig?.integer('max_seq_length')).toBe(256);
    expect(model.specialTokensMap?.object('cls_token').string('content')).toBe('[CLS]');
  });
});
