import type { KernelCase } from '../kernel-case.js';
import { exact, lengths, numbersOf, gaussianWith, specials } from '../values.js';

/** Copies: every bit. */
export const sliceColumnsCases: readonly KernelCase[] = [
  ...lengths.flatMap((length): KernelCase[] => [0, 3, 16].map((begin) => inside(begin, length))),
  ...[
    [0, 16, 32],
    [0, 24, 32],
    [3, 5, 9],
    [7, 7, 4],
    [0, 32, 32],
    [0, 40, 33],
    [-5, 3, 8],
    [-6, 8, 16],
    [-4, 9, 3],
    [-8, 8, 11],
  ].map(([begin, rowLength, length]) => padded(begin, rowLength, length)),
];

function inside(begin: number, length: number): KernelCase {
  return {
    op: 'slice-columns',
    name: `columns from ${begin}, 5 x ${length}`,
    dtypes: {},
    attributes: { begin, length },
    create(rng) {
      const rowLength = begin + length + (begin === 3 ? 0 : 6);
      const x = gaussianWith(rng, [5, 2, rowLength], specials, 0);
      const xs = numbersOf(x);
      const y = exact(
        Array.from({ length: 10 * length }, (_, i) => xs[Math.floor(i / length) * rowLength + begin + (i % length)]),
      );
      return { inputs: { x }, expected: { y } };
    },
  };
}

function padded(begin: number, rowLength: number, length: number): KernelCase {
  return {
    op: 'slice-columns',
    name: `columns from ${begin} of 5 x 2 x ${rowLength}, padded to ${length}`,
    dtypes: {},
    attributes: { begin, length, pads: true },
    create(rng) {
      const x = gaussianWith(rng, [5, 2, rowLength], specials, 0);
      const xs = numbersOf(x);
      const at = (i: number): number => begin + (i % length);
      const y = exact(
        Array.from({ length: 10 * length }, (_, i) =>
          at(i) >= 0 && at(i) < rowLength ? xs[Math.floor(i / length) * rowLength + at(i)] : 0,
        ),
      );
      return { inputs: { x }, expected: { y } };
    },
  };
}
