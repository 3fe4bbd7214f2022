import { underflow } from '../arithmetic.js';
import type { KernelCase } from '../kernel-case.js';
import { attentionAttributes, attentionSums, createAttention, type AttentionSetup } from '../setups/attention-setup.js';
import { rowsOf } from '../setups/sparse-setup.js';
import { chunkOf, severalSequences, sparseSetup, sparseSetups } from '../setups/sparse-setups.js';
import { close, gaussian, numbersOf } from '../values.js';

/**
 * A probability is the quotient of a weight and the sum of the weights, whose errors are those of `attentionSums`; a mass is a
 * sum of probabilities, one rounding for each term.
 */
function massCase(setup: AttentionSetup, hasPrevious = false): KernelCase {
  return {
    op: 'attention-mass',
    name: hasPrevious ? `${setup.name}, added` : setup.name,
    dtypes: { keys: setup.keyDType, values: setup.valueDType },
    attributes: attentionAttributes(setup),
    create(rng, arithmetic) {
      const { unit, elementary, tiny } = arithmetic;
      const problem = createAttention(setup, rng, arithmetic);
      const { numHeads, numKvHeads, blockSize, queries } = setup;
      const [numSequences, maxBlocks] = problem.inputs['blockTable'].shape;
      const shape = [numSequences, numKvHeads, maxBlocks, blockSize];
      const previous = gaussian(rng, shape, 3);
      const maxSlots = maxBlocks * blockSize;
      const length = numSequences * numKvHeads * maxSlots;
      const masses = hasPrevious ? Float64Array.from(numbersOf(previous)) : new Float64Array(length);
      const magnitudes = masses.map(Math.abs);
      const errors = new Float64Array(length);
      const numTerms = new Float64Array(length).fill(hasPrevious ? 1 : 0);
      for (const { query, head } of rowsOf(setup)) {
        const keys = problem.seen(query, head);
        if (keys.length === 0) continue;
        const { max, sum, sumError } = attentionSums(keys, 0, arithmetic);
        const kvHead = Math.floor(head / (numHeads / numKvHeads));
        for (const { slot, logit, logitError } of keys) {
          const weight = Math.exp(logit - max);
          const weightError = weight * (logitError + elementary + 2 * unit + 2 * unit * (max - logit)) + underflow;
          const index = (queries[query][0] * numKvHeads + kvHead) * maxSlots + slot;
          const mass = weight / sum;
          masses[index] += mass;
          magnitudes[index] += mass;
          errors[index] += weightError / sum + mass * (sumError + 3 * unit);
          numTerms[index] += 1;
        }
      }
      return {
        inputs: hasPrevious ? { ...problem.inputs, previous } : problem.inputs,
        expected: {
          mass: close(length, (i) => [masses[i], errors[i] + numTerms[i] * (unit * magnitudes[i] + tiny)]),
        },
      };
    },
  };
}

const shuffled = { ...severalSequences, isShuffled: true };

export const attentionMassCases: readonly KernelCase[] = [
  ...sparseSetups.map((setup) => massCase(setup)),
  massCase(sparseSetup('any order', shuffled)),
  massCase(sparseSetup('any order', shuffled), true),
  massCase(sparseSetup('any order, window of 9', { ...shuffled, window: 9 }), true),
  massCase(sparseSetup('any order, chunks of 9', { ...shuffled, window: 9, chunked: true })),
  massCase(sparseSetup('any order, bidirectional', { ...shuffled, causal: false, window: 21 })),
  massCase(sparseSetup('prefill of 70', { contextLengths: [70], queries: chunkOf(70) })),
  massCase(sparseSetup('prefill of 70', { contextLengths: [70], queries: chunkOf(70) }), true),
  massCase(sparseSetup('decode after 1000', { contextLengths: [1000], queries: [[0, 999]], blockSize: 64 }), true),
];
