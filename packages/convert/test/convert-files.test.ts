/** Dtypes, parts, tokenizers, errors, and failed writes. */
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { memorySink, type ByteSink } from '@winnow/bytes';
import { loadModel, openTokenizer } from '@winnow/engine';
import { openGgufFile } from '@winnow/gguf/node';
import { memoryFolder, openHubFolder } from '@winnow/hub';
import { localFolder } from '@winnow/hub/node';
import { Fields, type DecoderConfig } from '@winnow/models';
import { createReferenceBackend, type Backend } from '@winnow/ops';
import { ArgumentError, FormatError, IoError } from '@winnow/tensor';
import { sharedDataPath } from '@winnow/test-utils';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { convertToGguf, convertToFolder } from '../src/index.js';
import { convertFiles } from '../src/index.node.js';

const demo = fileURLToPath(new URL('../../demo-model/src/model', import.meta.url));
const tokens = [5, 9, 200, 31, 7, 64];
let backend: Backend;
let folder: string;
beforeAll(() => (backend = createReferenceBackend()));
afterAll(() => backend.dispose());
beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'winnow-convert-'))));
afterEach(() => rmSync(folder, { recursive: true }));

async function logprobs(path: string, quantize?: 'q8_0' | 'q4_0' | 'q4_K' | 'f16'): Promise<Float32Array[]> {
  await using model = await loadModel(path, {
    backend,
    maxSessions: 1,
    ...(quantize === undefined ? {} : { quantize }),
  });
  return await model.logprobs(tokens, { positions: tokens.map((_, index) => index) });
}

test('a bare file name is kept, and no other file is touched', async () => {
  const before = process.cwd();
  writeFileSync(join(folder, 'odel.gguf'), 'another file');
  process.chdir(folder);
  try {
    expect((await convertFiles(demo, 'model.gguf', { overwrite: true })).files).toEqual(['model.gguf']);
  } finally {
    process.chdir(before);
  }
  expect(readdirSync(folder).toSorted()).toEqual(['model.gguf', 'odel.gguf']);
  expect(readFileSync(join(folder, 'odel.gguf'), 'utf8')).toBe('another file');
});

describe('the demo model', () => {
  test.each(['q8_0', 'q4_0', 'q4_K', 'f16'] as const)('as %s equals quantizing while loading', async (type) => {
    const path = join(folder, 'model.gguf');
    const { kept, numTensors } = await convertFiles(demo, path, { type });
    await using file = { value: await openGgufFile(path), [Symbol.asyncDispose]: () => file.value.close() };
    expect(file.value.tensors.size).toBe(numTensors);
    // rows of 128 values are half a block of q4_K
    expect(kept.length > 0).toBe(type === 'q4_K');
    expect([...file.value.tensors.values()].map(({ dtype }) => dtype)).toContain(type === 'q4_K' ? 'f32' : type);
    expect(await logprobs(path)).toEqual(await logprobs(demo, type));
  });

  test('the tokenizer survives the conversion to GGUF and back', async () => {
    const [path, back] = [join(folder, 'model.gguf'), join(folder, 'back')];
    expect((await convertFiles(demo, path)).notices).toEqual([]);
    expect((await convertFiles(path, back)).notices).toEqual([]);
    const text = "Once upon a time, there's 123  dogs.\n\nTh\u00e9 end <|im_end|>";
    const [first, ...others] = await Promise.all(
      [demo, path, back].map(async (at) => (await openTokenizer(at)).tokenizer),
    );
    for (const other of others) {
      expect(other?.encode(text)).toEqual(first?.encode(text));
      expect(other?.eosIds).toEqual(first?.eosIds);
      expect(other?.addBos).toBe(first?.addBos);
    }
    expect((await openGgufFile(path)).metadata.getString('tokenizer.chat_template')).toContain('im_start');
  });

  test('parts of a given size open as one model', async () => {
    const path = join(folder, 'model.gguf');
    const { files } = await convertFiles(demo, path, { type: 'q8_0', splitSizeBytes: 1_000_000 });
    expect(files.length).toBeGreaterThan(2);
    expect(readdirSync(folder).toSorted()).toEqual([...files].toSorted());
    expect(await logprobs(join(folder, files[0] as string))).toEqual(await logprobs(demo, 'q8_0'));
    const whole = join(folder, 'folder');
    const parts = await convertFiles(join(folder, files[0] as string), whole, { splitSizeBytes: 2_000_000 });
    expect(parts.files).toContain('model.safetensors.index.json');
    expect(await logprobs(whole)).toEqual(await logprobs(join(folder, files[0] as string)));
  });

  test('progress reaches the total', async () => {
    const seen: number[] = [];
    let total = 0;
    await convertFiles(demo, join(folder, 'model.gguf'), {
      onProgress: ({ writtenBytes, totalBytes }) => {
        seen.push(writtenBytes);
        total = totalBytes;
      },
    });
    expect(seen).toEqual(seen.toSorted((a, b) => a - b));
    expect(seen.at(-1)).toBe(total);
  });
});

test('one safetensors file becomes the same file as its folder', async () => {
  const [fromFolder, fromFile] = [join(folder, 'folder.gguf'), join(folder, 'file.gguf')];
  await convertFiles(demo, fromFolder);
  await convertFiles(join(demo, 'model.safetensors'), fromFile);
  expect(readFileSync(fromFile).equals(readFileSync(fromFolder))).toBe(true);
});

test('a safetensors file of weights alone is rejected with what is missing', async () => {
  const path = join(folder, 'weights.safetensors');
  writeFileSync(path, Uint8Array.of(2, 0, 0, 0, 0, 0, 0, 0, 0x7b, 0x7d)); // the header {}
  const wanted = expect.objectContaining({ source: path, field: 'config.json' }) as Error;
  await expect(convertFiles(path, join(folder, 'model.gguf'))).rejects.toThrow(wanted);
});

describe('errors', () => {
  test('existing files are kept unless overwriting is allowed', async () => {
    const path = join(folder, 'model.gguf');
    writeFileSync(path, 'mine');
    await expect(convertFiles(demo, path)).rejects.toThrow(ArgumentError);
    expect(readFileSync(path, 'utf8')).toBe('mine');
    await convertFiles(demo, path, { overwrite: true });
    const back = join(folder, 'back');
    mkdirSync(back);
    writeFileSync(join(back, 'config.json'), '{}');
    await expect(convertFiles(path, back)).rejects.toThrow(ArgumentError);
    expect(readdirSync(back)).toEqual(['config.json']);
    await convertFiles(path, back, { overwrite: true });
  });

  test('quantized tensors are not requantized unless requested', async () => {
    const [path, other] = [join(folder, 'a.gguf'), join(folder, 'b.gguf')];
    await convertFiles(demo, path, { type: 'q8_0' });
    await expect(convertFiles(path, other, { type: 'q4_0' })).rejects.toThrow(/type of .*got q8_0/);
    expect(existsSync(other)).toBe(false);
    await convertFiles(path, other, { type: 'q4_0', allowRequantize: true });
    expect([...(await openGgufFile(other)).tensors.values()].map(({ dtype }) => dtype)).toContain('q4_0');
  });

  test('dtypes that a format does not support', async () => {
    const path = join(folder, 'a.gguf');
    await convertFiles(demo, path);
    await expect(convertFiles(path, join(folder, 'b'), { type: 'q8_0' })).rejects.toThrow(/type: expected f32/);
    expect(existsSync(join(folder, 'b'))).toBe(false);
    await expect(convertFiles(demo, join(folder, 'c.gguf'), { type: 'iq2_xs' })).rejects.toThrow(ArgumentError);
    await expect(convertFiles(demo, join(folder, 'c'))).rejects.toThrow(/ends in \.gguf/);
    await expect(convertFiles(join(folder, 'none'), path)).rejects.toThrow(IoError);
  });

  test('settings that the other format cannot express', async () => {
    const config = JSON.parse(readFileSync(join(demo, 'config.json'), 'utf8')) as object;
    const changed = join(folder, 'changed');
    mkdirSync(changed);
    for (const name of readdirSync(demo)) writeFileSync(join(changed, name), readFileSync(join(demo, name)));
    writeFileSync(
      join(changed, 'config.json'),
      JSON.stringify({ ...config, model_type: 'gemma2', query_pre_attn_scalar: 77 }),
    );
    await expect(convertFiles(changed, join(folder, 'x.gguf'))).rejects.toThrow(FormatError);
    expect(existsSync(join(folder, 'x.gguf'))).toBe(false);
  });
});

test('a full disk leaves nothing behind', async () => {
  const path = join(folder, 'a.gguf');
  await convertFiles(demo, path);
  const gguf = await openGgufFile(path);
  const file = {
    format: 'gguf',
    fields: new Fields('a', (key) => gguf.metadata.get(key)?.value),
    store: gguf,
  } as const;
  const states: string[] = [];
  const target = {
    open: (name: string): Promise<ByteSink> => {
      const sink = memorySink(name);
      return Promise.resolve({
        name,
        sizeBytes: 0,
        async write(bytes: Uint8Array) {
          if (sink.sizeBytes + bytes.length > 2e6) throw new IoError({ source: name, message: 'no space left' });
          await sink.write(bytes);
        },
        close: async () => void states.push(`closed ${name}`),
        abort: async () => void states.push(`aborted ${name}`),
      });
    },
  };
  const source = { format: 'gguf', gguf, file } as const;
  await expect(convertToFolder(source, target)).rejects.toThrow('no space left');
  await expect(convertToGguf(source, target, 'b.gguf')).rejects.toThrow('no space left');
  expect(states.filter((state) => state.startsWith('closed'))).toEqual([]);
  expect(states.length).toBeGreaterThan(0);
  await gguf.close();
});

test('the unknown token of a unigram vocabulary keeps its type although it is an added token, too', async () => {
  const { tokenizerToGguf } = await import('../src/tokenizer-to-gguf.js');
  const without = (pattern: string, content: string): object => ({
    type: 'Replace',
    pattern: { Regex: pattern },
    content,
  });
  const files = memoryFolder({
    'config.json': '{}',
    'tokenizer.json': JSON.stringify({
      added_tokens: [
        { id: 0, content: '<unk>', special: true },
        { id: 1, content: '</s>', special: true },
      ],
      normalizer: {
        type: 'Sequence',
        normalizers: [without('(?<![\\s\\S]) +| +(?![\\s\\S])', ''), without(' {2,}', ' ')],
      },
      pre_tokenizer: { type: 'Metaspace', replacement: '\u2581', prepend_scheme: 'always', split: true },
      post_processor: null,
      decoder: { type: 'Metaspace', replacement: '\u2581', prepend_scheme: 'always', split: true },
      model: {
        ...{ type: 'Unigram', unk_id: 0, byte_fallback: false },
        vocab: [['<unk>', 0], ['</s>', 0], ['\u2581', -2], ...Array.from('abcdefgh', (text) => [text, -3])],
      },
    }),
  });
  const config = { vocabSize: 11, architecture: 'llama' } as DecoderConfig;
  const notices: string[] = [];
  const pairs = new Map(await tokenizerToGguf(await openHubFolder(files), config, notices));
  expect(notices).toEqual([]);
  expect(pairs.get('tokenizer.ggml.model')).toBe('t5');
  const types = pairs.get('tokenizer.ggml.token_type') as { readonly value: Int32Array };
  expect([...types.value].slice(0, 3)).toEqual([2, 3, 1]); // unknown, control, normal
});

test.skipIf(sharedDataPath('data', 'tokenizers') === undefined)(
  'a WordPiece tokenizer.json in GGUF words (needs ../shared/data/tokenizers)',
  async () => {
    const { tokenizerToGguf } = await import('../src/tokenizer-to-gguf.js');
    const files = localFolder(sharedDataPath('data', 'tokenizers', 'minilm-tokenizer') as string);
    const notices: string[] = [];
    const pairs = await tokenizerToGguf(
      await openHubFolder(files),
      { vocabSize: 30522, architecture: 'bert' } as DecoderConfig,
      notices,
    );
    expect(new Map(pairs).get('tokenizer.ggml.model')).toBe('bert');
    expect(notices).toHaveLength(1);
  },
);

const vocabularies = ['gpt-2', 'llama-spm', 'phi-3', 'bert-bge'].map(
  (name) => [name, sharedDataPath('data', 'tokenizers', `ggml-vocab-${name}.gguf`)] as const,
);
const missing = vocabularies.some(([, path]) => path === undefined) ? ' (needs ../shared/data/tokenizers)' : '';
test.skipIf(missing !== '').each(vocabularies)(
  `the vocabulary of %s as tokenizer.json${missing}`,
  async (name, path) => {
    const { tokenizerToJson } = await import('../src/tokenizer-to-json.js');
    const file = await openGgufFile(path as string);
    const notices: string[] = [];
    // written only if it gives the same ids
    expect(tokenizerToJson((key) => file.metadata.get(key)?.value, notices)).toBeDefined();
    expect(notices).toHaveLength(name === 'bert-bge' ? 1 : 0);
    await file.close();
  },
);

test('a checkpoint whose dtype differs from its name', async () => {
  const path = join(folder, 'broken.gguf');
  writeFileSync(path, 'GGUF');
  await expect(convertFiles(path, join(folder, 'x'))).rejects.toThrow(FormatError);
  expect(existsSync(join(folder, 'x'))).toBe(false);
});

test('without settings of images the language model of a checkpoint is written alone, and a notice says so', async () => {
  const images = fileURLToPath(new URL('../../engine/test/fixtures/images/gemma3', import.meta.url));
  // without its tokenizer of whole words, which GGUF files cannot have
  for (const name of ['config.json', 'model.safetensors']) copyFileSync(join(images, name), join(folder, name));
  const path = join(folder, 'model.gguf');
  const { notices } = await convertFiles(folder, path);
  expect(notices).toContainEqual(
    expect.stringContaining('only the language model is written, without the image encoder'),
  );
  const ids = [2, 7, 14, 12, 18, 16];
  const rows: Float32Array[] = [];
  for (const location of [images, path]) {
    await using model = await loadModel(location, { backend, maxSessions: 1, context: 16 });
    rows.push(...(await model.logprobs(ids)));
  }
  expect(rows[1]).toEqual(rows[0]);
});

test.each(['clip', 'siglip'])('%s has an image encoder, which is not converted', async (name) => {
  const path = fileURLToPath(new URL(`../../engine/test/fixtures/images/${name}`, import.meta.url));
  const message = 'the model has an image encoder, which conversion does not write';
  await expect(convertFiles(path, join(folder, 'x.gguf'))).rejects.toThrow(message);
  expect(existsSync(join(folder, 'x.gguf'))).toBe(false);
});
