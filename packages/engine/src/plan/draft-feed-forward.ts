/** Sparse FFNs of the program that drafts: `sparsity: { use: 'drafts' }`. */
import { feedForwardNames, type DecoderProgramOptions, type ModelDescription } from '@winnow/models';
import type { Program, ProgramBuffer } from '@winnow/ops';
import type { SparseWeights } from '../sparsity/sparse-weights.js';
import { withFeedForward } from '../sparsity/with-feed-forward.js';
import { feedForwardOptions } from './fit-weights.js';

const prefix = 'draft.';

/**
 * A description whose programs skip neurons. Rows of gate and up that are read one by one get a copy of their own: the programs of the
 * model read the same weights by GEMV, for which a backend may repack them.
 */
export function withDraftFeedForward(description: ModelDescription, sparse: SparseWeights): ModelDescription {
  const skipping = withFeedForward(description, feedForwardOptions(sparse, undefined));
  return {
    ...skipping,
    buildProgram: (options: DecoderProgramOptions) => withOwnRows(skipping.buildProgram(options), description),
  };
}

function withOwnRows(program: Program, { config, weights }: ModelDescription): Program {
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
