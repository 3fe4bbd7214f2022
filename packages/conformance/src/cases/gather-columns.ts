import type { KernelCase } from '../kernel-case.js';
import { chosenRows } from '../setups/row-choice.js';
import { exact, gaussian, ints, lengths, numbersOf } from '../values.js';

/** Copies: every bit. */
export const gatherColumnsCases: readonly KernelCase[] = lengths
  .filter((length) => length > 0)
  .flatMap((numColumns): KernelCase[] =>
    ([1, 5] as const).flatMap((numTokens) =>
      (['none', 'some', 'slots'] as const).map((choice) => ({
        op: 'gather-columns',
        name: `${choice} of ${numTokens} x ${numColumns}`,
        dtypes: {},
        attributes: {},
        create(rng) {
          const x = gaussian(rng, [numTokens, numColumns], 1, 0);
          const { rows, count } = chosenRows(rng, choice, numColumns, numColumns);
          const values = numbersOf(x);
          const y = Array.from({ length: numTokens * numColumns }, (_, index) => {
            const [t, j] = [Math.floor(index / numColumns), index % numColumns];
            return j < count ? values[t * numColumns + rows[j]] : 0;
          });
          return {
            inputs: { x, ids: ints([numColumns], rows), count: ints([1], [count]) },
            expected: { y: exact(y) },
          };
        },
      })),
    ),
  );
