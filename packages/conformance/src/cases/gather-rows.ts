import type { KernelCase } from '../kernel-case.js';
import { exact, gaussian, ints, lengths, numbersOf } from '../values.js';

/** Copies: every bit. Rows repeat and come in any order. */
export const gatherRowsCases: readonly KernelCase[] = lengths.flatMap((length): KernelCase[] =>
  [0, 1, 5].map((numRows) => ({
    op: 'gather-rows',
    name: `${numRows} rows of ${length}`,
    dtypes: {},
    attributes: {},
    create(rng) {
      const x = gaussian(rng, [4, length]);
      const rows = Array.from({ length: numRows }, () => rng.nextInt(4));
      const values = numbersOf(x);
      const expected = exact(rows.flatMap((row) => [...values.subarray(row * length, (row + 1) * length)]));
      return { inputs: { x, rows: ints([numRows], rows, 0) }, expected: { y: expected } };
    },
  })),
);
