/** A sample of mutants, deterministic for a seed. */
import { createHash } from 'node:crypto';
import type { Mutant } from './mutant.ts';

export function chooseSample(mutants: readonly Mutant[], count: number, seed: string): readonly Mutant[] {
  const rank = ({ file, find, replace }: Mutant): string =>
    createHash('sha256').update([seed, file, find, replace].join('\0')).digest('hex');
  return mutants
    .map((mutant) => [rank(mutant), mutant] as const)
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .slice(0, count)
    .map(([, mutant]) => mutant);
}
