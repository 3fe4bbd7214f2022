import type { KernelCase } from '../kernel-case.js';
import { attentionAttributes, attentionSums, createAttention } from '../setups/attention-setup.js';
import { attentionSetups } from '../setups/attention-setups.js';
import { close } from '../values.js';

/** A quotient of two sums: both errors, and the rounding of the quotient. */
export const attentionCases: readonly KernelCase[] = attentionSetups.map((setup) => ({
  op: 'attention',
  name: setup.name,
  dtypes: { keys: setup.keyDType, values: setup.valueDType },
  attributes: attentionAttributes(setup),
  create(rng, arithmetic) {
    const { inputs, seen, sink } = createAttention(setup, rng, arithmetic);
    const { numHeads, valueDim, queries } = setup;
    const rows = queries.flatMap((_, query) =>
      Array.from({ length: numHeads }, (_, head) => {
        const keys = [...seen(query, head), ...sink(head)];
        return keys.length === 0 ? undefined : attentionSums(keys, valueDim, arithmetic);
      }),
    );
    const y = close(rows.length * valueDim, (index) => {
      const sums = rows[Math.floor(index / valueDim)];
      if (sums === undefined) return [0, 0];
      const value = sums.weighted[index % valueDim] / sums.sum;
      const error = sums.weightedErrors[index % valueDim] / sums.sum + Math.abs(value) * sums.sumError;
      return [value, error + 3 * arithmetic.unit * Math.abs(value) + arithmetic.tiny];
    });
    return { inputs, expected: { y } };
  },
}));
