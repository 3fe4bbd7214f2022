import type { KernelCase } from '../kernel-case.js';
import { close, lengths, numbersOf, gaussianWith, specials } from '../values.js';

/** tanh is off by an elementary error and by its slope times the rounding of the quotient. */
export const softCapCases: readonly KernelCase[] = lengths.flatMap((length): KernelCase[] =>
  [30, 0.75].map((cap) => ({
    op: 'soft-cap',
    name: `cap ${cap}, 2 x ${length}`,
    dtypes: {},
    attributes: { cap },
    create(rng, { unit, elementary, tiny }) {
      const x = gaussianWith(rng, [2, length], specials, 0);
      const xs = numbersOf(x);
      const y = close(xs.length, (i) => {
        const e = Math.exp((-2 * Math.abs(xs[i])) / cap);
        // tanh |z| = (1 - e) / (1 + e), by expm1 where that cancels
        const magnitude = -Math.expm1((-2 * Math.abs(xs[i])) / cap) / (1 + e);
        const value = Math.sign(xs[i]) * cap * magnitude;
        return [Number.isNaN(xs[i]) ? NaN : value, (elementary + 4 * unit) * Math.abs(value) + tiny * (1 + cap)];
      });
      return { inputs: { x }, expected: { y } };
    },
  })),
);
