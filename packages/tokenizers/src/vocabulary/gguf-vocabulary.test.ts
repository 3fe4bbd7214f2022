import { FormatError, WinnowError } from '@winnow/tensor';
import { characterAt, lastCharacter } from '@winnow/test-utils';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { Architectures } from '../../test/fixtures.js';
import { architectureMetadata, readFixture } from '../../test/fixtures.js';
import { tokenizerFromGguf } from '../gguf/from-gguf.js';
import { ggufVocabulary } from './gguf-vocabulary.js';

const fixture = readFixture<Architectures>('architectures.json');
const read = (metadata: Record<string, unknown>): unknown => ggufVocabulary((key) => metadata[key]);

const good = architectureMetadata(fixture, 'llama');

it('reads existing fields and omits missing ones', () => {
  expect(read(good)).toMatchObject({ model: 'llama', pre: 'default', bosId: 1, eosId: 2, unkId: 0, addBos: true });
  expect(read(good)).not.toHaveProperty('merges');
  expect(read({ ...good, 'tokenizer.ggml.padding_token_id': 0xffffffff })).not.toHaveProperty('padId');
  expect(read(architectureMetadata(fixture, 'bert-mean'))).toMatchObject({ sepId: 3, clsId: 2, maskId: 4, padId: 0 });
});

it.each<[string, unknown, RegExp]>([
  ['tokenizer.ggml.model', undefined, /tokenizer\.ggml\.model: expected a string/],
  ['tokenizer.ggml.model', 'rwkv', /expected one of llama, gpt2, gemma4, bert, t5, found "rwkv"/],
  ['tokenizer.ggml.tokens', undefined, /expected an array of strings/],
  ['tokenizer.ggml.tokens', [], /at least one token/],
  ['tokenizer.ggml.tokens', ['a', 1], /found 1 at index 1/],
  ['tokenizer.ggml.scores', [1], /expected 320 entries, one per token, found 1/],
  ['tokenizer.ggml.scores', new Float32Array(320).fill(Number.NaN), /found NaN/],
  ['tokenizer.ggml.token_type', new Int32Array(3), /expected 320 entries/],
  ['tokenizer.ggml.bos_token_id', 320, /tokenizer\.ggml\.bos_token_id: expected a token id below 320, found 320/],
  ['tokenizer.ggml.bos_token_id', '1', /expected a token id, found "1"/],
  ['tokenizer.ggml.add_bos_token', 1, /expected a boolean/],
])('%s = %j is rejected', (key, value, message) => {
  expect(() => read({ ...good, [key]: value })).toThrow(FormatError);
  expect(() => read({ ...good, [key]: value })).toThrow(message);
});

it('lists the known pre-tokenizers for an unknown one', () => {
  const metadata = { ...architectureMetadata(fixture, 'qwen2'), 'tokenizer.ggml.pre': 'qwen9' };
  const vocabulary = ggufVocabulary((key) => (metadata as Record<string, unknown>)[key]);
  expect(() => tokenizerFromGguf(vocabulary)).toThrow(/expected one of .*llama-bpe.*qwen2.*found "qwen9"/);
});

it('throws only Winnow errors for any metadata', () => {
  const value = fc.oneof(
    fc.constantFrom('llama', 'gpt2', 'bert', 't5', 'gemma4', 'default', 'llama-bpe'),
    fc.string(),
    fc.integer({ min: -2, max: 400 }),
    fc.double(),
    fc.boolean(),
    fc.bigInt(),
    fc.array(fc.oneof(fc.string(), fc.integer(), fc.constant(null)), { maxLength: 5 }),
    fc.array(fc.string({ maxLength: 4 }), { maxLength: 8 }),
    fc.uint8Array({ maxLength: 40 }),
    fc.constant(null),
  );
  const names = ['llama', 'qwen2', 'bert-mean'];
  const keys = [...new Set(names.flatMap((name) => Object.keys(architectureMetadata(fixture, name))))];
  keys.push('tokenizer.ggml.precompiled_charsmap', 'tokenizer.ggml.add_eos_token', 'tokenizer.ggml.cls_token_id');
  const changes = fc.array(fc.tuple(fc.constantFrom(...keys), value), { minLength: 1, maxLength: 6 });
  fc.assert(
    fc.property(
      fc.constantFrom(...names),
      changes,
      fc.string({ unit: fc.nat(lastCharacter).map(characterAt) }),
      (name, entries, text) => {
        const metadata = { ...architectureMetadata(fixture, name), ...Object.fromEntries(entries) };
        try {
          const tokenizer = tokenizerFromGguf(ggufVocabulary((key) => metadata[key]));
          tokenizer.decode(tokenizer.encode(text));
        } catch (error) {
          if (!WinnowError.isInstance(error)) throw error;
        }
      },
    ),
    { numRuns: 1000 },
  );
});
