/** Vocabularies that both formats have under rules of their own. */
import { memoryFolder, openHubFolder } from '@winnow/hub';
import type { DecoderConfig } from '@winnow/models';
import { tokenizerFromGguf, tokenizerFromJson, ggufVocabulary } from '@winnow/tokenizers';
import { expect, test } from 'vitest';
import { tokenizerToGguf } from '../src/tokenizer-to-gguf.js';
import { tokenizerToJson } from '../src/tokenizer-to-json.js';

const mark = '\u2581';

/** A tokenizer with the rules of Gemma 4: characters, marks of spaces, merges and bytes. */
function gemmaTokenizer(): { readonly text: string; readonly size: number } {
  const special = ['<pad>', '<eos>', '<bos>', '<unk>'];
  const bytes = Array.from({ length: 256 }, (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`);
  const characters = [mark, ...'abcdefghilnorstuwy'];
  const merges = [
    [mark, 'w'],
    ['t', 'h'],
    ['th', 'e'],
    [mark, 'the'],
    ['o', 'n'],
  ];
  const bos = { SpecialToken: { id: '<bos>', type_id: 0 } };
  const tokens = [...special, ...bytes, ...characters, ...merges.map((merge) => merge.join(''))];
  const text = JSON.stringify({
    added_tokens: special.map((content, id) => ({ id, content, special: true, normalized: false })),
    normalizer: { type: 'Replace', pattern: { String: ' ' }, content: mark },
    pre_tokenizer: { type: 'Split', pattern: { String: ' ' }, behavior: 'MergedWithPrevious', invert: false },
    post_processor: {
      type: 'TemplateProcessing',
      single: [bos, { Sequence: { id: 'A', type_id: 0 } }],
      pair: [bos, { Sequence: { id: 'A', type_id: 0 } }, { Sequence: { id: 'B', type_id: 1 } }],
      special_tokens: { '<bos>': { id: '<bos>', ids: [2], tokens: ['<bos>'] } },
    },
    decoder: {
      type: 'Sequence',
      decoders: [
        { type: 'Replace', pattern: { String: mark }, content: ' ' },
        { type: 'ByteFallback' },
        { type: 'Fuse' },
      ],
    },
    model: {
      ...{ type: 'BPE', unk_token: '<unk>', fuse_unk: true, byte_fallback: true, merges },
      vocab: Object.fromEntries(tokens.map((token, id) => [token, id])),
    },
  });
  return { text, size: tokens.length };
}

test('the tokenizer of Gemma 4 keeps its merges in GGUF files and comes back', async () => {
  const { text, size } = gemmaTokenizer();
  const files = memoryFolder({
    'config.json': '{}',
    'tokenizer.json': text,
    'tokenizer_config.json': '{ "bos_token": "<bos>" }',
  });
  const notices: string[] = [];
  const config = { vocabSize: size, architecture: 'gemma4' } as DecoderConfig;
  const pairs = new Map(await tokenizerToGguf(await openHubFolder(files), config, notices));
  expect(notices).toEqual([]);
  expect(pairs.get('tokenizer.ggml.model')).toBe('gemma4');
  const get = (key: string): unknown => {
    const value = pairs.get(key);
    return typeof value === 'object' && value !== null && 'value' in value ? value.value : value;
  };
  const written = tokenizerToJson(get, notices);
  expect(notices).toEqual([]);
  const original = tokenizerFromJson(JSON.parse(text) as Record<string, unknown>);
  const back = tokenizerFromJson(written?.tokenizer as Record<string, unknown>, written?.config);
  const own = tokenizerFromGguf(ggufVocabulary(get));
  for (const sample of ['the one in the sun', ' two  spaces and \u{1f680}', 'line\n\nline']) {
    const options = { addSpecialTokens: false };
    const expected = [...original.encode(sample, options)];
    expect([...own.encode(sample, options)]).toEqual(expected);
    expect([...back.encode(sample, options)]).toEqual(expected);
  }
});
