import { tokenizerFromJson } from '@winnow/tokenizers';
import { expect, test } from 'vitest';
import { StopMatcher } from './stop-matcher.js';
import { TextStream } from './text-stream.js';

/** Byte-level spellings: `Ã` and `©` are the two bytes of é, `Ġ` a space. */
const words = ['<s>', '</s>', 'a', 'b', 'Ã', '©', 'Ġ', 'EN', 'D'];
const tokenizer = tokenizerFromJson({
  added_tokens: ['<s>', '</s>'].map((content, id) => ({
    id,
    content,
    special: true,
    normalized: false,
    single_word: false,
    lstrip: false,
    rstrip: false,
  })),
  pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true },
  decoder: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true },
  model: { type: 'BPE', vocab: Object.fromEntries(words.map((word, id) => [word, id])), merges: [] },
});
const prompt = Int32Array.of(0);

/** The text that each token releases, then the text that the end releases. */
function pieces(tokens: readonly string[], stops: readonly string[]): string[] {
  const stream = new TextStream(tokenizer, prompt, new StopMatcher(stops));
  const texts = tokens.map((word) => stream.push(words.indexOf(word)));
  return [...texts, stream.flush(), String(stream.isStopped)];
}

test('a character is emitted when its last byte arrives', () => {
  expect(pieces(['a', 'Ã', '©', 'b'], [])).toEqual(['a', '', 'é', 'b', '', 'false']);
});

test('an incomplete character becomes U+FFFD at the end', () => {
  expect(pieces(['a', 'Ã'], [])).toEqual(['a', '', '\uFFFD', 'false']);
  expect(pieces(['a', 'Ã', 'b'], [])).toEqual(['a', '', '\uFFFDb', '', 'false']);
});

test('a stop sequence that spans tokens and parts of characters', () => {
  expect(pieces(['a', 'EN', 'D', 'b'], ['END'])).toEqual(['a', '', '', '', '', 'true']);
  expect(pieces(['a', 'EN', 'b'], ['END'])).toEqual(['a', '', 'ENb', '', 'false']);
  expect(pieces(['a', 'EN'], ['END'])).toEqual(['a', '', 'EN', 'false']);
  expect(pieces(['b', 'a', 'Ã', '©', 'D'], ['aéD'])).toEqual(['b', '', '', '', '', '', 'true']);
  expect(pieces(['a', 'EN', 'Ã'], ['END'])).toEqual(['a', '', '', 'EN\uFFFD', 'false']);
});

test('special tokens and rows beyond the vocabulary have no text', () => {
  expect(pieces(['a', '</s>', 'b'], [])).toEqual(['a', '', 'b', '', 'false']);
  expect(new TextStream(tokenizer, prompt, new StopMatcher([])).push(words.length + 5)).toBe('');
});
