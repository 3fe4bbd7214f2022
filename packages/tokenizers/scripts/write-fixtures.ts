/**
 * Writes src/__fixtures__/*.json. Needs Node >= 24 (runs TypeScript as it is) and, for the expected ids of reference
 * implementations, `node-llama-cpp` in NODE_LLAMA_CPP and `tokenizers` in TOKENIZERS (paths of their package folders).
 * GOLDENS is the folder `arch` of the architecture goldens, DEMO the tokenizer.json of the demo model.
 */
import { mkdtempSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { openGgufFile } from '@winnow/gguf/node';
import { type GgufTypedValue, writeGguf } from '@winnow/gguf';
import { preTokenizerNames } from '@winnow/tokenizers';
import { idsHash, mixedTexts, pairVocabulary } from '../test/cases.ts';
import { jsonCases } from '../test/json-cases.ts';
import { testCharsmap } from '../test/tables.ts';

const { GOLDENS = '', DEMO = '', NODE_LLAMA_CPP = '', TOKENIZERS = '' } = process.env;
/** What a file of the goldens says about tokens. */
interface Golden {
  readonly tokenize: unknown;
  readonly embeddings?: readonly { readonly text: string; readonly tokens: readonly number[] }[];
}

/** A tokenizer of llama.cpp or of Hugging Face: text to ids. */
interface LlamaModel {
  tokenize(text: string, special: boolean): readonly number[];
  dispose(): Promise<void>;
}

interface LlamaModule {
  getLlama(options: object): Promise<{ loadModel(options: object): Promise<LlamaModel> }>;
}

interface TokenizersModule {
  readonly Tokenizer: {
    fromString(json: string): { encode(text: string): Promise<{ getIds(): readonly number[] }> };
  };
}

const folder = new URL('../src/__fixtures__/', import.meta.url);
const scratch = mkdtempSync(join(tmpdir(), 'winnow-tokenizers-'));
const save = (name: string, value: unknown): void => writeFileSync(new URL(name, folder), `${JSON.stringify(value)}\n`);

// Vocabularies and ids of the architecture goldens; equal vocabularies are stored once.
const vocabularies: Record<string, unknown>[] = [];
const architectures: Record<string, unknown>[] = [];
for (const name of readdirSync(GOLDENS)) {
  const file = await openGgufFile(join(GOLDENS, name, 'model.gguf'));
  const metadata: Record<string, unknown> = {};
  for (const [key, { value }] of file.metadata) {
    if (!key.startsWith('tokenizer.') && key !== 'general.name' && key !== 'general.architecture') continue;
    metadata[key] = ArrayBuffer.isView(value) ? [...(value as Float32Array)] : value;
  }
  await file.close();
  const lists: Record<string, unknown> = {};
  for (const key of Object.keys(metadata).filter((name) => Array.isArray(metadata[name]))) {
    lists[key] = metadata[key];
    delete metadata[key];
  }
  const text = JSON.stringify(lists);
  if (!vocabularies.some((known) => JSON.stringify(known) === text)) vocabularies.push(lists);
  const vocabulary = vocabularies.findIndex((known) => JSON.stringify(known) === text);
  const golden = JSON.parse(readFileSync(join(GOLDENS, name, 'golden.json'), 'utf8')) as Golden;
  const embedded = (golden.embeddings ?? []).map(({ text, tokens }) => ({ text, tokens }));
  architectures.push({ name, metadata, vocabulary, tokenize: golden.tokenize, embedded });
}
save('architectures.json', { vocabularies, architectures });
writeFileSync(new URL('demo-tokenizer.json', folder), readFileSync(DEMO));

// llama.cpp's ids for every pre-tokenizer name.
const texts = mixedTexts(64);
const llamaModule = pathToFileURL(join(NODE_LLAMA_CPP, 'dist', 'index.js')).href;
const { getLlama } = (await import(llamaModule)) as LlamaModule;
const llama = await getLlama({ gpu: false, build: 'never', logLevel: 'disabled' });
const { tokens, merges } = pairVocabulary();
const preTokenizers: Record<string, string> = {};
const skipped = ['gemma4', 'granite-embed-multi-311m', 'sarvam-moe'];
for (const name of preTokenizerNames().filter((known) => !skipped.includes(known))) {
  const path = join(scratch, `${name}.gguf`);
  const string = (value: string): GgufTypedValue => ({ type: 'string', value });
  const chunks: Uint8Array[] = [];
  const sink = {
    name,
    sizeBytes: 0,
    write: async (chunk: Uint8Array) => void chunks.push(chunk.slice()),
    close: async () => {},
    abort: async () => {},
  };
  await writeGguf(sink, {
    metadata: {
      'general.architecture': string('gpt2'),
      'tokenizer.ggml.model': string('gpt2'),
      'tokenizer.ggml.pre': string(name),
      'tokenizer.ggml.tokens': { type: 'array', elementType: 'string', value: tokens },
      'tokenizer.ggml.token_type': {
        type: 'array',
        elementType: 'int32',
        value: tokens.map((_, id) => (id === tokens.length - 1 ? 3 : 1)),
      },
      'tokenizer.ggml.merges': { type: 'array', elementType: 'string', value: merges },
      'tokenizer.ggml.bos_token_id': { type: 'uint32', value: tokens.length - 1 },
      'tokenizer.ggml.eos_token_id': { type: 'uint32', value: tokens.length - 1 },
    },
    tensors: [],
  });
  writeFileSync(path, Buffer.concat(chunks));
  const model = await llama.loadModel({ modelPath: path, vocabOnly: true });
  preTokenizers[name] = texts.map((text) => idsHash(model.tokenize(text, false))).join('');
  await model.dispose();
}
save('llama-cpp-hashes.json', { texts: texts.length, preTokenizers });

// Hugging Face tokenizers' ids for every component.
const demo = JSON.parse(readFileSync(DEMO, 'utf8')) as { model: { vocab: object } };
const words = Object.keys(demo.model.vocab);
const cases = jsonCases({ tokens, merges }, words, Buffer.from(testCharsmap()).toString('base64'));
const { Tokenizer } = createRequire(import.meta.url)(TOKENIZERS) as TokenizersModule;
const components: Record<string, string> = {};
for (const [name, value] of Object.entries(cases)) {
  const tokenizer = Tokenizer.fromString(JSON.stringify(value));
  const encodings = await Promise.all(texts.map((text) => tokenizer.encode(text)));
  components[name] = encodings.map((encoding) => idsHash(encoding.getIds())).join('');
}
save('hugging-face-hashes.json', { texts: texts.length, components });
process.exit(0);
