import { groupMatmuls, rewriteProgram, type Program } from '@winnow/ops';

/** A program with the fusions that pay on every backend (docs/decisions/0017-fusions.md). */
export function fuseProgram(program: Program): Program {
  return rewriteProgram(program, [groupMatmuls]);
}
