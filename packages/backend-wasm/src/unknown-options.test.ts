/** Unknown options are errors that name the nearest known one. */
import { UnknownOptionError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { createWasmBackend, measurePeaks } from './index.js';

/** A misspelled option, as passed by untyped code. */
const unknown: object = { singal: undefined };

test.each<[name: string, call: () => unknown]>([
  ['createWasmBackend', () => createWasmBackend(unknown)],
  ['measurePeaks', () => measurePeaks(unknown)],
])('%s', async (_name, call) => {
  await expect((async () => call())()).rejects.toThrow(UnknownOptionError);
});
