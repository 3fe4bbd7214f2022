import type { KernelCase } from '../kernel-case.js';
import { exact, lengths, numbersOf, seasoned, specials } from '../values.js';

/** Copies: every bit. */
export const sliceColumnsCases: readonly KernelCase[] = lengths.flatMap((length): KernelCase[] =>
  [0, 3, 16].map((begin) => ({
    op: 'slice-columns',
    name: `columns from ${begin}, 5 x ${length}`,
    dtypes: {},
    attributes: { begin, length },
    create(rng) {
      const rowLength = begin + length + (begin === 3 ? 0 : 6);
      const x = seasoned(rng, [5, 2, rowLength], specials, 0);
      const xs = numbersOf(x);
      const y = exact(
        Array.from({ length: 10 * length }, (_, i) => xs[Math.floor(i / length) * rowLength + begin + (i % length)]),
      );
      return { inputs: { x }, expected: { y } };
    },
  })),
);
