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
import { writeGguf } from '@winnow/gguf';
import { preTokenizerNames } from '@winnow/tokenizers';
import { idsHash, mixedTexts, pairVocabulary } from '../test/cases.ts';
import { jsonCases } from '../test/json-cases.ts';
import { testCharsmap } from '../test/tables.ts';

const { GOLDENS, DEMO, NODE_LLAMA_CPP, TOKENIZERS } = process.env;
const folder = new URL('../src/__fixtures__/', import.meta.url);
const scratch = mkdtempSync(join(tmpdir(), 'winnow-tokenizers-'));
const save = (name, value) => writeFileSync(new URL(name, folder), `${JSON.stringify(value)}\n`);

// Vocabularies and ids of the architecture goldens; equal vocabularies are stored once.
const vocabularies = [];
const architectures = [];
for (const name of readdirSync(GOLDENS)) {
  const file = await openGgufFile(join(GOLDENS, name, 'model.gguf'));
  const metadata = {};
  for (const [key, { value }] of file.metadata) {
    if (!key.startsWith('tokenizer.') && key !== 'general.name' && key !== 'general.architecture') continue;
    metadata[key] = ArrayBuffer.isView(value) ? [...value] : value;
  }
  await file.close();
  const lists = {};
  for (const key of Object.keys(metadata).filter((name) => Array.isArray(metadata[name]))) {
    lists[key] = metadata[key];
    delete metadata[key];
  }
  const text = JSON.stringify(lists);
  if (!vocabularies.some((known) => JSON.stringify(known) === text)) vocabularies.push(lists);
  const vocabulary = vocabularies.findIndex((known) => JSON.stringify(known) === text);
  const golden = JSON.parse(readFileSync(join(GOLDENS, name, 'golden.json'), 'utf8'));
  const embedded = (golden.embeddings ?? []).map(({ text, tokens }) => ({ text, tokens }));
  architectures.push({ name, metadata, vocabulary, tokenize: golden.tokenize, embedded });
}
save('architectures.json', { vocabularies, architectures });
writeFileSync(new URL('demo-tokenizer.json', folder), readFileSync(DEMO));

// llama.cpp's ids for every pre-tokenizer name.
const texts = mixedTexts(64);
const { getLlama } = await import(pathToFileURL(join(NODE_LLAMA_CPP, 'dist', 'index.js')).href);
const llama = await getLlama({ gpu: false, build: 'never', logLevel: 'disabled' });
const { tokens, merges } = pairVocabulary();
const preTokenizers = {};
const skipped = ['gemma4', 'granite-embed-multi-311m', 'sarvam-moe'];
for (const name of preTokenizerNames().filter((known) => !skipped.includes(known))) {
  const path = join(scratch, `${name}.gguf`);
  const string = (value) => ({ type: 'string', value });
  const chunks = [];
  const sink = {
    write: async (chunk) => void chunks.push(chunk.slice()),
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
const demo = JSON.parse(readFileSync(DEMO, 'utf8'));
const words = Object.keys(demo.model.vocab);
const cases = jsonCases({ tokens, merges }, words, Buffer.from(testCharsmap()).toString('base64'));
const { Tokenizer } = createRequire(import.meta.url)(TOKENIZERS);
const components = {};
for (const [name, value] of Object.entries(cases)) {
  const tokenizer = Tokenizer.fromString(JSON.stringify(value));
  const encodings = await Promise.all(texts.map((text) => tokenizer.encode(text)));
  components[name] = encodings.map((encoding) => idsHash(encoding.getIds())).join('');
}
save('hugging-face-hashes.json', { texts: texts.length, components });
process.exit(0);
