/** Defects in attention policies and sparse feed-forward blocks. */
import type { Mutant } from '../mutant.ts';

export const sparsityMutants: readonly Mutant[] = [];
