import type { KernelCase } from '../kernel-case.js';
import { attentionAttributes, attentionSums, createAttention, type AttentionSetup } from '../setups/attention-setup.js';
import { attentionSetups } from '../setups/attention-setups.js';
import { close } from '../values.js';

/** The same problems as dense attention; the sums are relative to a maximum that has an error itself. */
function partialCase(setup: AttentionSetup, numParts: number): KernelCase {
  return {
    op: 'attention-partial',
    name: `${setup.name}, parts: ${numParts}`,
    dtypes: { keys: setup.keyDType, values: setup.valueDType },
    attributes: { ...attentionAttributes(setup), numParts },
    create(rng, arithmetic) {
      const { inputs, seen } = createAttention(setup, rng, arithmetic);
      const { numHeads, valueDim, queries, contextLengths } = setup;
      const rows = Array.from({ length: numParts }, (_, part) =>
        queries.flatMap(([sequence], query) =>
          Array.from({ length: numHeads }, (_, head) => {
            const partLength = Math.ceil(contextLengths[sequence] / numParts);
            const keys = seen(query, head).filter(({ slot }) => Math.floor(slot / partLength) === part);
            return keys.length === 0 ? undefined : attentionSums(keys, valueDim, arithmetic);
          }),
        ),
      ).flat();
      const m = close(rows.length, (row) => [rows[row]?.max ?? -Infinity, rows[row]?.maxError ?? 0]);
      const l = close(rows.length, (row) => {
        const sums = rows[row];
        return sums === undefined ? [0, 0] : [sums.sum, sums.sum * (sums.sumError + sums.maxError)];
      });
      const o = close(rows.length * valueDim, (index) => {
        const sums = rows[Math.floor(index / valueDim)];
        if (sums === undefined) return [0, 0];
        const value = sums.weighted[index % valueDim];
        const error = sums.weightedErrors[index % valueDim] + Math.abs(value) * (sums.maxError + arithmetic.unit);
        return [value, error + arithmetic.tiny];
      });
      return { inputs, expected: { m, l, o } };
    },
  };
}

const setups = attentionSetups.filter(
  ({ sinkSpread, biasReach }) => sinkSpread === undefined && biasReach === undefined,
);

export const attentionPartialCases: readonly KernelCase[] = setups.flatMap((setup, index) =>
  (index % 4 === 0 || setup.name === 'several sequences' ? [1, 2, 3, 8] : [1 + (index % 5)]).map((numParts) =>
    partialCase(setup, numParts),
  ),
);
