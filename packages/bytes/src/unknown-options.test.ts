/** Unknown options are errors that name the nearest known one. */
import { UnknownOptionError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { httpSource } from './index.js';

/** A misspelled option, as passed by untyped code. */
const unknown: object = { singal: undefined };

test.each<[name: string, call: () => unknown]>([['httpSource', () => httpSource('http://127.0.0.1:9/', unknown)]])(
  '%s',
  async (_name, call) => {
    await expect((async () => call())()).rejects.toThrow(UnknownOptionError);
  },
);
