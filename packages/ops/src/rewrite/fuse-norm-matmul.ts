import { normMatmul } from '../ops/norm-matmul.js';
import type { DraftRecord, DraftTensor } from '../program/draft-program.js';
import { isSameTensor, type RecordGraph } from './record-graph.js';
import type { RewriteRule } from './rewrite-program.js';

/**
 * Fuses a norm with the matmuls of its result, so that a backend quantizes the activations while it normalizes them:
 * `norm-matmul` instead of each. Results have the same bits.
 */
export const fuseNormMatmul: RewriteRule = {
  name: 'fuse-norm-matmul',
  op: normMatmul.name,
  rewrite(records, graph) {
    const replaced = new Map<DraftRecord, readonly DraftRecord[]>();
    for (const record of records) {
      const matmuls = matmulsAfter(record, graph);
      if (matmuls.length === 0) continue;
      replaced.set(record, []);
      for (const matmul of matmuls) replaced.set(matmul, [fused(record, matmul)]);
    }
    return records.flatMap((record) => replaced.get(record) ?? [record]);
  },
};

/** The consumers of a norm's result if all of them are matmuls. */
function matmulsAfter(record: DraftRecord, graph: RecordGraph): readonly DraftRecord[] {
  const { y } = record.outputs;
  if (record.spec.name !== 'rms-norm' || y === undefined || y.shape.length !== 2) return [];
  if (graph.producerOf(y) !== record || graph.isOutput(y)) return [];
  const readers = graph.readersOf(y);
  return readers.every((reader) => multiplies(reader, y) && graph.canMove(record, reader)) ? readers : [];
}

function multiplies({ spec, inputs: { x, ...others } }: DraftRecord, activations: DraftTensor): boolean {
  const isOther = Object.values(others).every(({ storage }) => storage !== activations.storage);
  return spec.name === 'matmul' && x !== undefined && isSameTensor(x, activations) && isOther;
}

function fused(norm: DraftRecord, matmul: DraftRecord): DraftRecord {
  const { x, weight } = norm.inputs as Record<'x' | 'weight', DraftTensor>;
  return { ...matmul, spec: normMatmul, inputs: { ...matmul.inputs, x, norm: weight }, attributes: norm.attributes };
}
