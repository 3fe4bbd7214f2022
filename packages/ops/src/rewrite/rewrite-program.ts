/** Rewrites programs by fusion rules that preserve results. */
import { draftOf, planDraft, type DraftProgram, type DraftRecord } from '../program/draft-program.js';
import type { Program } from '../program/program.js';
import { RecordGraph } from './record-graph.js';

/** A fusion. */
export interface RewriteRule {
  readonly name: string;
  /** The op that the rule emits, for backends with a kernel for it. Undefined if every backend can run the result. */
  readonly op?: string;
  /** The records of one segment after the rule. */
  rewrite(records: readonly DraftRecord[], graph: RecordGraph): readonly DraftRecord[];
}

/**
 * Applies all rules in order. The result uses the same buffers and scalars, has the same boundaries and computes the
 * same outputs; the arena is planned again.
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
