/** Grammars over vocabularies of real models, without weights: the mask allows what the tokenizer encodes. */
import { createRng } from '@winnow/tensor';
import { memorySource } from '@winnow/bytes';
import { openGguf } from '@winnow/gguf';
import { jsonSchemaGrammar, createTokenGrammar, createTokenTrie } from '@winnow/grammar';
import { sharedDataPath } from '@winnow/test-utils';
import { ggufVocabulary, tokenizerFromGguf, type Tokenizer } from '@winnow/tokenizers';
import { readFile } from 'node:fs/promises';
import { describe, expect, test } from 'vitest';

const folder = sharedDataPath('data', 'tokenizers');
const value = { title: 'Die Bäume 🌲', tags: ['a', 'sea "deep"'], year: 1851, ok: true, note: 'line\nline' };
const schema = {
  type: 'object',
  properties: {
    title: { type: 'string' },
    tags: { type: 'array', items: { type: 'string', maxLength: 40 } },
    year: { type: 'integer', minimum: 1000, maximum: 2100 },
    ok: { type: 'boolean' },
    note: { type: 'string' },
  },
  required: ['title', 'tags', 'year', 'ok', 'note'],
  additionalProperties: false,
};

async function tokenizerOf(file: string): Promise<Tokenizer> {
  const gguf = await openGguf(memorySource(await readFile(`${folder}/${file}`)));
  return tokenizerFromGguf(ggufVocabulary((key) => gguf.metadata.get(key)?.value));
}

describe.skipIf(folder === undefined)('vocabularies of models (needs ../shared/data/tokenizers)', () => {
  test.each(['ggml-vocab-llama-spm.gguf', 'ggml-vocab-gpt-2.gguf', 'ggml-vocab-phi-3.gguf'])('%s', async (file) => {
    const tokenizer = await tokenizerOf(file);
    const { vocabSize } = tokenizer;
    const tokenBytes = (id: number): Uint8Array | undefined =>
      tokenizer.isSpecial(id) || tokenizer.eosIds.includes(id) ? undefined : tokenizer.tokenBytes(id);
    const trie = createTokenTrie({ vocabSize, tokenBytes });
    const tokens = createTokenGrammar({ grammar: jsonSchemaGrammar(schema), trie, endTokens: tokenizer.eosIds });
    const closing = trie.tokens.filter((id) =>
      /^["\]}:,0-9tfr]$/.test(new TextDecoder().decode(tokenizer.tokenBytes(id))),
    );
    const has = (bits: Uint32Array, id: number): boolean => (((bits[id >> 5] as number) >>> (id & 31)) & 1) === 1;

    // the tokenizer's own tokens of a text, which some vocabularies begin with a space
    const { text, begin } = encoded(tokenizer);
    const matcher = tokens.start();
    for (const id of begin) {
      expect(has(matcher.mask().bits, id)).toBe(true);
      expect(matcher.accept(id)).toBe(true);
    }
    expect([text, matcher.canEnd, matcher.isComplete]).toEqual([JSON.stringify(value), true, true]);
    expect([...tokenizer.eosIds].every((id) => has(matcher.mask().bits, id))).toBe(true);

    // random tokens of the mask, decoded by the tokenizer
    const rng = createRng(3);
    for (let run = 0; run < 2; run++) {
      const free = tokens.start();
      const ids: number[] = [];
      while (!free.isComplete && ids.length < 400) {
        const { bits } = free.mask();
        // single-character tokens bring the text to an end
        const ends = ids.length > 8 ? closing.filter((id) => has(bits, id)) : closing.subarray(0, 0);
        const allowed = ends.length > 0 ? ends : trie.tokens.filter((id) => has(bits, id));
        const id = allowed[Math.floor(rng.nextFloat() * allowed.length)] as number;
        expect(free.accept(id)).toBe(true);
        ids.push(id);
      }
      const detokenizer = tokenizer.createDetokenizer({ continuation: true });
      const written = ids.map((id) => detokenizer.push(id)).join('') + detokenizer.flush();
      expect(free.isComplete && Object.keys(JSON.parse(written) as object).sort()).toEqual(schema.required.toSorted());
    }
  });
});

/** The text as the tokenizer encodes it, without the space that it may have put before. */
function encoded(tokenizer: Tokenizer): { text: string; begin: number[] } {
  const source = JSON.stringify(value);
  const ids = Array.from(tokenizer.encode(source, { addSpecialTokens: false }));
  const first = new TextDecoder().decode(tokenizer.tokenBytes(ids[0] as number));
  const begin = first.startsWith(' ') ? [...piecesOf(tokenizer, first.slice(1)), ...ids.slice(1)] : ids;
  const detokenizer = tokenizer.createDetokenizer({ continuation: true });
  return { text: begin.map((id) => detokenizer.push(id)).join('') + detokenizer.flush(), begin };
}

/** A short text as single-character tokens. */
function piecesOf(tokenizer: Tokenizer, text: string): number[] {
  return Array.from(text, (char) => tokenizer.idOf(char) as number);
}
