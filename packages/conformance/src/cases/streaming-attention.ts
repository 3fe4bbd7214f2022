import type { KernelCase } from '../kernel-case.js';
import { attentionAttributes, createAttention, type AttentionSetup } from '../setups/attention-setup.js';
import { attended, integers, masses, rowsOf } from '../setups/sparse-setup.js';
import {
  chunkOf,
  massSetups,
  severalSequences,
  sinkSetups,
  sparseSetup,
  sparseSetups,
} from '../setups/sparse-setups.js';
import { gaussian, numbersOf } from '../values.js';

function streamingCase(setup: AttentionSetup, local: number, sinks: number, remaps = true, mass = false): KernelCase {
  return {
    op: 'streaming-attention',
    name: `${setup.name}, local ${local}, sinks ${sinks}${remaps ? '' : ', one query'}${mass ? ', mass' : ''}`,
    dtypes: { keys: setup.keyDType, values: setup.valueDType },
    attributes: { ...attentionAttributes(setup), local, sinks, mass },
    create(rng, arithmetic) {
      const problem = createAttention(setup, rng, arithmetic);
      const { queries, numHeads, headDim, valueDim } = setup;
      const sinkQ = gaussian(rng, [queries.length, numHeads, headDim], 2, 0);
      const remapped = remaps ? numbersOf(sinkQ) : undefined;
      const rows = rowsOf(setup).map(({ query, head }) => {
        const begin = queries[query][1] - local + 1;
        return [
          ...problem.sink(head),
          ...problem.seen(query, head, remapped).filter(({ position }) => position < Math.min(begin, sinks)),
          ...problem.seen(query, head).filter(({ position }) => position >= begin),
        ];
      });
      return {
        inputs: { ...problem.inputs, ...(remaps ? { sinkQ } : {}) },
        expected: {
          y: attended(rows, valueDim, arithmetic),
          pairs: integers(queries.map((_, query) => rows[query * numHeads].filter(({ slot }) => slot >= 0).length)),
          ...(mass ? { mass: masses(problem, setup, rows, arithmetic) } : {}),
        },
      };
    },
  };
}

const shuffled = { ...severalSequences, isShuffled: true };

export const streamingAttentionCases: readonly KernelCase[] = [
  ...sparseSetups.map((setup) => streamingCase(setup, 9, 3)),
  ...[1, 2, 16, 100].flatMap((local) =>
    [0, 1, 30].map((sinks) => streamingCase(sparseSetup('any order', shuffled), local, sinks)),
  ),
  streamingCase(sparseSetup('any order', shuffled), 12, 4, false),
  ...massSetups.map((setup) => streamingCase(setup, 9, 3, true, true)),
  streamingCase(sparseSetup('any order', shuffled), 12, 4, false, true),
  streamingCase(sparseSetup('prefill', { contextLengths: [150], queries: chunkOf(150, 30) }), 20, 5, true, true),
  streamingCase(sparseSetup('any order, model window of 15', { ...shuffled, window: 15 }), 8, 30),
  streamingCase(sparseSetup('any order, model window of 4', { ...shuffled, window: 4 }), 8, 30),
  streamingCase(sparseSetup('prefill', { contextLengths: [150], queries: chunkOf(150, 30) }), 20, 5),
  streamingCase(sparseSetup('prefill', { contextLengths: [150], queries: chunkOf(150), softCap: 9 }), 70, 20),
  ...sinkSetups.map((setup) => streamingCase(setup, 9, 3, true, setup.sinkSpread === 1)),
];
