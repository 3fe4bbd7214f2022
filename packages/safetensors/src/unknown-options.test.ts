/** Unknown options are errors that name the nearest known one. */
import { memorySink, memorySource } from '@winnow/bytes';
import { UnknownOptionError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { openSafetensors, openShardedSafetensors, writeSafetensors } from './index.js';

/** A misspelled option, as passed by untyped code. */
const unknown: object = { singal: undefined };
const source = memorySource(new Uint8Array(8));

test.each<[name: string, call: () => unknown]>([
  ['openSafetensors', () => openSafetensors(source, unknown)],
  ['openShardedSafetensors', () => openShardedSafetensors('{}', async () => source, unknown)],
  ['writeSafetensors', () => writeSafetensors(memorySink(), { ...unknown, tensors: [] })],
])('%s', async (_name, call) => {
  await expect((async () => call())()).rejects.toThrow(UnknownOptionError);
});
