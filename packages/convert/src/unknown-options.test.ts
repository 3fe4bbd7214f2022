/** Unknown options are errors that name the nearest known one. */
import { UnknownOptionError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { convertToFolder, convertToGguf, type ConvertSource } from './index.js';
import { convertFiles } from './index.node.js';

/** A misspelled option, as passed by untyped code. */
const unknown: object = { singal: undefined };
const source = { format: 'gguf' } as Extract<ConvertSource, { format: 'gguf' }>;
const target = {
  open: (): never => {
    throw new Error('nothing is written');
  },
};

test.each<[name: string, call: () => unknown]>([
  ['convertFiles', () => convertFiles('no-model.gguf', 'no-folder', unknown)],
  ['convertToFolder', () => convertToFolder(source, target, unknown)],
  ['convertToGguf', () => convertToGguf(source, target, 'model.gguf', unknown)],
])('%s', async (_name, call) => {
  await expect((async () => call())()).rejects.toThrow(UnknownOptionError);
});
