/** Unknown options are errors that name the nearest known one. */
import { memorySource } from '@winnow/bytes';
import { UnknownOptionError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { openOnnx } from './index.js';

/** A misspelled option, as passed by untyped code. */
const unknown: object = { singal: undefined };

test.each<[name: string, call: () => unknown]>([
  ['openOnnx', () => openOnnx(memorySource(new Uint8Array(8)), unknown)],
])('%s', async (_name, call) => {
  await expect((async () => call())()).rejects.toThrow(UnknownOptionError);
});
