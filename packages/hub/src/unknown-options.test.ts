/** Unknown options are errors that name the nearest known one. */
import { UnknownOptionError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { memoryFolder, openHubFolder } from './index.js';
import { downloadRepo } from './index.node.js';

/** A misspelled option, as passed by untyped code. */
const unknown: object = { singal: undefined };

test.each<[name: string, call: () => unknown]>([
  ['openHubFolder', () => openHubFolder(memoryFolder({}), unknown)],
  ['downloadRepo', () => downloadRepo({ ...unknown, repo: 'owner/name' })],
])('%s', async (_name, call) => {
  await expect((async () => call())()).rejects.toThrow(UnknownOptionError);
});
