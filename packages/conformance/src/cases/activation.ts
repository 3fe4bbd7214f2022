import { activationKinds } from '@winnow/ops';
import { activationTruth } from '../activation-truth.js';
import type { KernelCase } from '../kernel-case.js';
import { close, lengths, numbersOf, seasoned, specials } from '../values.js';

/** Every kind at every length, special values among the random ones. */
export const activationCases: readonly KernelCase[] = activationKinds.flatMap((kind): KernelCase[] =>
  lengths.map((length) => ({
    op: 'activation',
    name: `${kind}, 3 x ${length}`,
    dtypes: {},
    attributes: { kind },
    create(rng, arithmetic) {
      const x = seasoned(rng, [3, length], specials, 0);
      const xs = numbersOf(x);
      return { inputs: { x }, expected: { y: close(xs.length, (i) => activationTruth(kind, xs[i], arithmetic)) } };
    },
  })),
);
