/** Unknown options are errors that name the nearest known one. */
import { UnknownOptionError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { createSchemaWriter, createTokenGrammar, createTokenTrie, jsonSchemaGrammar } from './index.js';

/** A misspelled option, as passed by untyped code. */
const unknown: object = { singal: undefined };
const trie = createTokenTrie({ vocabSize: 0, tokenBytes: () => new Uint8Array() });

test.each<[name: string, call: () => unknown]>([
  ['createSchemaWriter', () => createSchemaWriter(new Map(), unknown)],
  ['jsonSchemaGrammar', () => jsonSchemaGrammar(true, unknown)],
  ['createTokenGrammar', () => createTokenGrammar({ ...unknown, grammar: jsonSchemaGrammar(true), trie })],
])('%s', async (_name, call) => {
  await expect((async () => call())()).rejects.toThrow(UnknownOptionError);
});
