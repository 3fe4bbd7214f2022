/** A target with defects of several kinds: the first byte of an input says which. */
import { FormatError } from '@winnow/tensor';
import type { Target } from '../../src/target.ts';

const behaviors: Readonly<Record<string, () => unknown>> = {
  t: () => {
    throw new FormatError({ source: 'canary', field: 'first byte', message: 'expected another' });
  },
  u: () => {
    throw new TypeError('undefined is not a function');
  },
  r: () => void Promise.reject(new RangeError('nobody waits for this')),
  h: () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0), // for ever, without a core
};

export async function createTarget(): Promise<Target> {
  return {
    examples: ['ok', 'typed', 'untyped', 'rejected', 'hangs', 'ok'].map((text) => new TextEncoder().encode(text)),
    mutate: (_random, input) => input,
    async run(input) {
      await behaviors[String.fromCharCode(input[0] as number)]?.();
      await new Promise((resolve) => setImmediate(resolve));
    },
  };
}
