/** Rewrites programs by rules: fusions of records that compute the same in less time. */
import { draftOf, planDraft, type DraftProgram, type DraftRecord } from '../draft-program.js';
import type { Program } from '../program.js';
import { RecordGraph } from './record-graph.js';

/** A fusion. */
export interface RewriteRule {
  readonly name: string;
  /** The op that the rule writes, for backends that have a kernel for it. Without it, every backend can run the result. */
  readonly op?: string;
  /** The records of one segment after the rule. */
  rewrite(records: readonly DraftRecord[], graph: RecordGraph): readonly DraftRecord[];
}

/**
 * The program after all rules, in their order. It takes the same buffers and scalars, has the same boundaries and computes the same
 * outputs; the arena is planned anew.
 */
export function rewriteProgram(program: Program, rules: readonly RewriteRule[]): Program {
  let draft: DraftProgram = draftOf(program);
  for (const rule of rules) {
    const graph = new RecordGraph(draft);
    const segments = draft.segments.map(({ records, boundary }) => ({
      records: rule.rewrite(records, graph),
      boundary,
    }));
    draft = { ...draft, segments };
  }
  return planDraft(draft);
}
