import { activationKinds } from '@winnow/ops';
import { activationTruth } from '../activation-truth.js';
import type { KernelCase } from '../kernel-case.js';
import { close, gaussian, lengths, numbersOf, seasoned, specials } from '../values.js';

/** The bound of the activation times the other factor, and one more rounding. */
export const gatedActivationCases: readonly KernelCase[] = activationKinds.flatMap((kind): KernelCase[] =>
  lengths.map((length) => ({
    op: 'gated-activation',
    name: `${kind}, 3 x ${length}`,
    dtypes: {},
    attributes: { kind },
    create(rng, arithmetic) {
      const gate = seasoned(rng, [3, length], specials, 0);
      const up = gaussian(rng, [3, length], 2, 0);
      const [gates, ups] = [numbersOf(gate), numbersOf(up)];
      const y = close(gates.length, (i) => {
        const [value, bound] = activationTruth(kind, gates[i], arithmetic);
        const product = value * ups[i];
        return [product, bound * Math.abs(ups[i]) + arithmetic.unit * Math.abs(product) + arithmetic.tiny];
      });
      return { inputs: { gate, up }, expected: { y } };
    },
  })),
);
