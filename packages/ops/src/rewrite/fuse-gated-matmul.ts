import { gatedMatmul } from '../ops/gated-matmul.js';
import type { DraftRecord } from '../program/draft-program.js';
import { matchPattern, type RecordPattern } from './pattern.js';
import type { RewriteRule } from './rewrite-program.js';

const pattern: RecordPattern = {
  op: 'glu',
  inputs: {
    gate: { op: 'matmul', inputs: { x: 'x', weight: 'gate' } },
    up: { op: 'matmul', inputs: { x: 'x', weight: 'up' } },
  },
};

/** Fuses the matmuls of gate and up with the activation, unless it is clamped: one `gated-matmul`. Results have the same bits. */
export const fuseGatedMatmul: RewriteRule = {
  name: 'fuse-gated-matmul',
  op: gatedMatmul.name,
  rewrite(records, graph) {
    const replaced = new Map<DraftRecord, readonly DraftRecord[]>();
    for (const record of records) {
      const match = matchPattern(pattern, record, graph);
      const { kind, limit } = record.attributes;
      if (match === undefined || Number(limit ?? 0) !== 0) continue;
      for (const inner of match.inner) replaced.set(inner, []);
      const attributes = { kind: kind as string };
      replaced.set(record, [{ ...record, spec: gatedMatmul, attributes, inputs: match.tensors }]);
    }
    return records.flatMap((record) => replaced.get(record) ?? [record]);
  },
};
