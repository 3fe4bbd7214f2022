/** Third-party vocabularies and models of the shared data folder: exact vectors, and GGUF files against Hugging Face folders. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { openGgufFile } from '@winnow/gguf/node';
import { sharedDataPath } from '@winnow/test-utils';
import { describe, expect, it } from 'vitest';
import { ggufVocabulary, tokenizerFromGguf, tokenizerFromJson } from '../src/index.js';
import type { Tokenizer } from '../src/index.js';
import { mixedTexts } from './cases.js';
import type { TokenizedText } from './fixtures.js';

async function openGguf(path: string): Promise<Tokenizer> {
  const file = await openGgufFile(path);
  try {
    return tokenizerFromGguf(ggufVocabulary((key) => file.metadata.get(key)?.value));
  } finally {
    await file.close();
  }
}

function readJson<T>(path: string): T {
  return JSON.parse(readFileSync(path, 'utf8')) as T;
}

function openJson(folder: string): Tokenizer {
  return tokenizerFromJson(readJson(join(folder, 'tokenizer.json')), readJson(join(folder, 'tokenizer_config.json')));
}

const vectors = sharedDataPath('data', 'tokenizers');
const missing = (what: string, path: string | undefined): string =>
  path === undefined ? ` (skipped: ${what} not found beside the checkout)` : '';

describe.skipIf(vectors === undefined)(`llama.cpp vectors${missing('data/tokenizers', vectors)}`, () => {
  it.each(['llama-spm', 'phi-3', 'gpt-2', 'bert-bge'])('%s: every text', async (name) => {
    const path = join(vectors!, `ggml-vocab-${name}.gguf`);
    const tokenizer = await openGguf(path);
    const texts = readFileSync(`${path}.inp`, 'utf8').split('\n__ggml_vocab_test__\n');
    const lines = readFileSync(`${path}.out`, 'utf8').split('\n');
    expect(texts.length).toBeGreaterThan(40);
    texts.forEach((text, index) => {
      for (const parseSpecialTokens of [false, true]) {
        const ids = tokenizer.encode(text, { addSpecialTokens: false, parseSpecialTokens });
        expect([...ids].join(' '), JSON.stringify(text)).toBe(lines[index]!.trim());
      }
      if (tokenizer.kind !== 'wordpiece') {
        expect(tokenizer.decode(tokenizer.encode(text, { addSpecialTokens: false }))).toBe(text);
      }
    });
  });

  it('MiniLM: GGUF and Hugging Face ids agree where both follow the same rules', async () => {
    const json = openJson(join(vectors!, 'minilm-tokenizer'));
    const gguf = await openGguf(join(vectors!, 'ggml-vocab-bert-bge.gguf'));
    expect(json).toMatchObject({ kind: 'wordpiece', vocabSize: 30522, clsId: 101, sepId: 102, unkId: 100 });
    for (const text of ["Hello, world! don't", 'na\u00efve \u4e2d\u6587 caf\u00e9', '[MASK] (x)', 'x'.repeat(100)]) {
      expect(json.encode(text)).toEqual(gguf.encode(text));
    }
    // llama.cpp has no limit of 100 characters per word and keeps one letter of a Korean syllable.
    expect([...json.encode('x'.repeat(101))]).toEqual([101, 100, 102]);
    expect(gguf.encode('x'.repeat(101))).not.toEqual(json.encode('x'.repeat(101)));
  });
});

const models = sharedDataPath('data', 'models');

describe.skipIf(models === undefined)(`models${missing('data/models', models)}`, () => {
  it.each(['stories260K', 'babyllama-tok105', 'babyllama-tok361'])(
    '%s: GGUF, tokenizer.json and golden agree',
    async (name) => {
      const gguf = await openGguf(join(models!, name, `${name}.F32.gguf`));
      const json = openJson(join(models!, name, 'hf'));
      expect(json.vocabSize).toBe(gguf.vocabSize);
      expect([json.bosId, json.eosId, json.unkId]).toEqual([gguf.bosId, gguf.eosId, gguf.unkId]);
      for (const text of mixedTexts(200)) {
        const plain = text.replaceAll('<s>', '').replaceAll('</s>', '');
        expect(json.encode(plain), JSON.stringify(plain)).toEqual(gguf.encode(plain));
        const ids = json.encode(plain);
        expect(json.decode(ids, { skipSpecialTokens: true })).toBe(gguf.decode(ids, { skipSpecialTokens: true }));
      }
      const golden = readJson<{ tokenize?: TokenizedText[] }>(join(models!, name, 'golden.json'));
      for (const { text, tokens } of golden.tokenize ?? []) {
        expect([...json.encode(text, { addSpecialTokens: false })]).toEqual(tokens);
        expect([...gguf.encode(text, { addSpecialTokens: false })]).toEqual(tokens);
      }
    },
  );
});
