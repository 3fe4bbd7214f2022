import type { DraftRecord } from '../program/draft-program.js';
import { isSameTensor, type RecordGraph } from './record-graph.js';
import type { RewriteRule } from './rewrite-program.js';

/**
 * Makes matmuls of the same activations adjacent, such as query, key and value, or gate and up. A backend then
 * quantizes the activations once and needs no barrier between them, as if their weights were one matrix. Results have
 * the same bits.
 */
export const groupMatmuls: RewriteRule = {
  name: 'group-matmuls',
  rewrite(records, graph) {
    const grouped = new Set<DraftRecord>(); // in the new order
    for (const record of records) {
      grouped.add(record);
      for (const other of followersOf(record, graph)) grouped.add(other);
    }
    return [...grouped];
  },
};

/** Later matmuls of the same activations that may move up to this one. */
function followersOf(record: DraftRecord, graph: RecordGraph): readonly DraftRecord[] {
  const x = activationsOf(record);
  if (x === undefined) return [];
  return graph.readersOf(x).filter((other) => {
    const own = activationsOf(other);
    return own !== undefined && isSameTensor(own, x) && graph.isBefore(record, other) && graph.canMove(other, record);
  });
}

function activationsOf({ spec, inputs }: DraftRecord): DraftRecord['inputs'][string] | undefined {
  return spec.name === 'matmul' ? inputs['x'] : undefined;
}
