import type { KernelCase } from '../kernel-case.js';
import { integersOf, ints, lengths, randomTensor, gaussianWith, specials } from '../values.js';
import { shuffledSlots } from './position-append.js';

/** Copies: every bit of the rows that are named, NaN included. All other rows stay. */
export const scatterRowsCases: readonly KernelCase[] = lengths.flatMap((length): KernelCase[] =>
  [0, 1, 9].map((numTokens) => ({
    op: 'scatter-rows',
    name: `${numTokens} rows of ${length}`,
    dtypes: {},
    attributes: {},
    create(rng) {
      const numRows = numTokens + 3;
      const x = gaussianWith(rng, [numTokens, length], specials, 0);
      const rows = shuffledSlots(rng, numTokens, numRows);
      const y = randomTensor(rng, 'f32', [numRows, length]);
      const [source, after] = [integersOf(x), integersOf(y)];
      for (const [t, row] of rows.entries()) {
        if (row >= 0) after.set(source.subarray(t * length, (t + 1) * length), row * length);
      }
      return {
        inputs: { x, rows: ints([numTokens], rows, 0) },
        updated: { y },
        expected: { y: { kind: 'bytes', bytes: new Uint8Array(after.buffer) } },
      };
    },
  })),
);
