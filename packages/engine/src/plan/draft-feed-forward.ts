/** Sparse FFNs of the program that drafts: `sparsity: { use: 'drafts' }`. */
import { feedForwardNames, type ModelDescription } from '@winnow/models';
import type { Program, ProgramBuffer } from '@winnow/ops';
import type { SparseWeights } from '../sparsity/sparse-weights.js';
import { feedForwardOptions, type FeedForwardOptions } from './fit-weights.js';

const prefix = 'draft.';

/** The options of the model, but skipping neurons. */
export function draftFeedForward(sparse: SparseWeights, feedForward: FeedForwardOptions): FeedForwardOptions {
  const skipping = feedForwardOptions(sparse, undefined);
  return (maxTokens) => ({ ...feedForward(maxTokens), ...skipping(maxTokens) });
}

/**
 * A program that skips neurons, in which rows of gate and up that are read one by one get a copy of their own: the programs of the model
 * read the same weights by GEMV, for which a backend may repack them.
 */
export function withOwnRows(program: Program, { config, weights }: ModelDescription): Program {
  const shared = new Set(
    Array.from({ length: config.numLayers }, (_, layer) => feedForwardNames(layer)).flatMap(({ gate, up }) => [
      `${gate}.weight`,
      `${up}.weight`,
    ]),
  );
  const sparseReads = program.records.flatMap(({ op, inputs }) =>
    op.startsWith('sparse-') ? Object.values(inputs) : [],
  );
  const read = new Set(sparseReads.map(({ buffer }) => buffer));
  const buffers = program.buffers.map((buffer, index): ProgramBuffer => {
    const weight = weights.get(buffer.name);
    if (!read.has(index) || weight === undefined || !shared.has(buffer.name)) return buffer;
    const name = prefix + buffer.name;
    weights.set(name, { ...weight, name });
    return { ...buffer, name };
  });
  return { ...program, buffers };
}
