/** Unknown options are errors that name the nearest known one. */
import { memorySink, memorySource } from '@winnow/bytes';
import { UnknownOptionError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { openGguf, openGgufUrl, openSplitGguf, writeGguf } from './index.js';
import { openGgufFile } from './index.node.js';

/** A misspelled option, as passed by untyped code. */
const unknown: object = { singal: undefined };
const source = memorySource(new Uint8Array(8));

test.each<[name: string, call: () => unknown]>([
  ['openGguf', () => openGguf(source, unknown)],
  ['openGguf, limits', () => openGguf(source, { limits: unknown })],
  ['openGgufUrl', () => openGgufUrl('http://127.0.0.1:9/a.gguf', unknown)],
  ['openGgufFile', () => openGgufFile(new URL('__fixtures__/llama.gguf', import.meta.url).pathname, unknown)],
  ['openSplitGguf', () => openSplitGguf('a-00001-of-00002.gguf', async () => source, unknown)],
  ['writeGguf', () => writeGguf(memorySink(), { ...unknown, metadata: {}, tensors: [] })],
])('%s', async (_name, call) => {
  await expect((async () => call())()).rejects.toThrow(UnknownOptionError);
});
