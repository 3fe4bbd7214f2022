import type { KernelCase } from '../kernel-case.js';
import { attentionAttributes, createAttention, type AttentionSetup } from '../setups/attention-setup.js';
import { attended, clearlyLargest, integers, masses, rowsOf } from '../setups/sparse-setup.js';
import { chunkOf, massSetups, severalSequences, sparseSetup, sparseSetups } from '../setups/sparse-setups.js';

function oracleCase(setup: AttentionSetup, k: number, mass = false): KernelCase {
  return {
    op: 'oracle-topk-attention',
    name: `${setup.name}, k ${k}${mass ? ', mass' : ''}`,
    dtypes: { keys: setup.keyDType, values: setup.valueDType },
    attributes: { ...attentionAttributes(setup), k, mass },
    create(rng, arithmetic) {
      const problem = createAttention(setup, rng, arithmetic);
      const rows = rowsOf(setup).map(({ query, head }) => {
        const keys = problem.seen(query, head);
        const logits = keys.map(({ logit }) => logit);
        const errors = keys.map(({ logitError }) => logitError);
        return clearlyLargest(logits, k, errors).map((index) => keys[index]);
      });
      return {
        inputs: problem.inputs,
        expected: {
          y: attended(rows, setup.valueDim, arithmetic),
          pairs: integers(setup.queries.map((_, query) => rows[query * setup.numHeads].length)),
          ...(mass ? { mass: masses(problem, setup, rows, arithmetic) } : {}),
        },
      };
    },
  };
}

const shuffled = { ...severalSequences, isShuffled: true };

const longContext = sparseSetup('decode after 5000', {
  ...{
    contextLengths: [5000],
    queries: [[0, 4999]],
    numHeads: 2,
    numKvHeads: 1,
    headDim: 4,
    valueDim: 4,
    blockSize: 64,
  },
});

export const oracleTopKAttentionCases: readonly KernelCase[] = [
  ...sparseSetups.map((setup) => oracleCase(setup, 6)),
  ...[1, 2, 17, 100].map((k) => oracleCase(sparseSetup('any order', shuffled), k)),
  ...massSetups.map((setup) => oracleCase(setup, 6, true)),
  oracleCase(longContext, 300, true),
  oracleCase(sparseSetup('any order, bidirectional', { ...shuffled, causal: false, window: 21 }), 5),
  // more scores than bins of the selection
  ...[1, 300].map((k) => oracleCase(longContext, k)),
  // one component, so that equal keys have equal scores in any order of adding; larger ones come before and after
  oracleCase(sparseSetup('equal scores', { headDim: 1, numDistinctKeys: 4 }), 20),
  oracleCase(sparseSetup('prefill', { contextLengths: [70], queries: chunkOf(70) }), 8),
];
