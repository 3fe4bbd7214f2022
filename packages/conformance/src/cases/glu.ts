import { activationKinds, type ActivationKind } from '@winnow/ops';
import { activationTruth } from '../activation-truth.js';
import type { KernelCase } from '../kernel-case.js';
import { countedColumns } from '../setups/counted-columns.js';
import { close, gaussian, ints, lengths, numbersOf, gaussianWith, specials } from '../values.js';

/** The bound of the activation times the other factor, and one more rounding; with a count, 0 beyond it. */
function gluCase(kind: ActivationKind, numRows: number, length: number, count?: number): KernelCase {
  return {
    op: 'glu',
    name: `${kind}, ${numRows} x ${count === undefined ? '' : `${count} of `}${length}`,
    dtypes: {},
    attributes: { kind },
    create(rng, arithmetic) {
      const gate = gaussianWith(rng, [numRows, length], specials, 0);
      const up = gaussian(rng, [numRows, length], 2, 0);
      const [gates, ups] = [numbersOf(gate), numbersOf(up)];
      const y = close(gates.length, (i) => {
        if (i % length >= (count ?? length)) return [0, 0];
        const [value, bound] = activationTruth(kind, gates[i], arithmetic);
        const product = value * ups[i];
        return [product, bound * Math.abs(ups[i]) + arithmetic.unit * Math.abs(product) + arithmetic.tiny];
      });
      const inputs = { gate, up, ...(count === undefined ? {} : { count: ints([1], [count]) }) };
      return { inputs, expected: { y } };
    },
  };
}

/**
 * The clamped GLU: the activation and its argument, two roundings off, which an activation amplifies by at most 1.2; then the
 * quotient, the sum and the product.
 */
function clampedCase(kind: ActivationKind, length: number, limit: number, alpha: number): KernelCase {
  return {
    op: 'glu',
    name: `${kind}, clamped to ${limit}, alpha ${alpha}, 3 x ${length}`,
    dtypes: {},
    attributes: { kind, limit, alpha },
    create(rng, arithmetic) {
      const { unit, tiny } = arithmetic;
      const gate = gaussianWith(rng, [3, length], specials, 0);
      const up = gaussian(rng, [3, length], 2 * limit, 0);
      const [gates, ups] = [numbersOf(gate), numbersOf(up)];
      const y = close(gates.length, (i) => {
        const argument = alpha * (gates[i] > limit ? limit : gates[i]);
        const [value, bound] = activationTruth(kind, argument, arithmetic);
        const factor = (Math.abs(ups[i]) > limit ? Math.sign(ups[i]) * limit : ups[i]) + 1;
        const product = (value / alpha) * factor;
        const error = (bound + 1.2 * 2 * unit * Math.abs(argument)) / alpha;
        return [product, error * Math.abs(factor) + 4 * unit * Math.abs(product) + tiny];
      });
      return { inputs: { gate, up }, expected: { y } };
    },
  };
}

export const gluCases: readonly KernelCase[] = activationKinds.flatMap((kind) => [
  ...lengths.map((length) => gluCase(kind, 3, length)),
  ...countedColumns.map(([numRows, count, length]) => gluCase(kind, numRows, length, count)),
  ...[1, 5, 64].map((length) => clampedCase(kind, length, 7, 1.702)),
  clampedCase(kind, 33, 0.5, 1),
]);
