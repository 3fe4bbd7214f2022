/** Options that do not exist are errors, which name the nearest one. */
import { memorySource } from '@winnow/bytes';
import { UnknownOptionError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { openOnnx } from './index.js';

/** A misspelled option, as untyped code passes it. */
const unknown: object = { singal: undefined };

test.each<[name: string, call: () => unknown]>([
  ['openOnnx', () => openOnnx(memorySource(new Uint8Array(8)), unknown)],
])('%s', async (_name, call) => {
  await expect((async () => call())()).rejects.toThrow(UnknownOptionError);
});
