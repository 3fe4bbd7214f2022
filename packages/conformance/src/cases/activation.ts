import { activationKinds, type ActivationKind } from '@winnow/ops';
import { activationTruth } from '../activation-truth.js';
import type { KernelCase } from '../kernel-case.js';
import { countedColumns } from '../setups/counted-columns.js';
import { close, ints, lengths, numbersOf, gaussianWith, specials } from '../values.js';

function activationCase(kind: ActivationKind, numRows: number, length: number, count?: number): KernelCase {
  return {
    op: 'activation',
    name: `${kind}, ${numRows} x ${count === undefined ? '' : `${count} of `}${length}`,
    dtypes: {},
    attributes: { kind },
    create(rng, arithmetic) {
      const x = gaussianWith(rng, [numRows, length], specials, 0);
      const xs = numbersOf(x);
      const y = close(xs.length, (i) =>
        i % length < (count ?? length) ? activationTruth(kind, xs[i], arithmetic) : [0, 0],
      );
      return { inputs: { x, ...(count === undefined ? {} : { count: ints([1], [count]) }) }, expected: { y } };
    },
  };
}

/** Every kind at every length, special values among the random ones; with a count, 0 beyond it. */
export const activationCases: readonly KernelCase[] = activationKinds.flatMap((kind) => [
  ...lengths.map((length) => activationCase(kind, 3, length)),
  ...countedColumns.map(([numRows, count, length]) => activationCase(kind, numRows, length, count)),
]);
