/** Rows for sparse ops. */
import type { Rng } from '@winnow/tensor';

/** No row, one, some in ascending order, all in order, or slots of a cache: any rows in any order. */
export type RowChoice = 'none' | 'one' | 'some' | 'all' | 'slots';

/**
 * `numNeurons` rows below `numRows`, of which the first `count` are active; the others are row 0. All choices except
 * `slots` need at least as many rows as neurons.
 */
export function chosenRows(
  rng: Rng,
  choice: RowChoice,
  numNeurons: number,
  numRows: number,
): { readonly rows: number[]; readonly count: number } {
  const all = Array.from({ length: numRows }, (_, row) => row);
  let chosen: number[];
  if (choice === 'none') chosen = [];
  else if (choice === 'one') chosen = [rng.nextInt(numRows)];
  else if (choice === 'all') chosen = all.slice(0, numNeurons);
  else if (choice === 'some') chosen = all.slice(0, numNeurons).filter(() => rng.nextInt(3) === 0);
  else chosen = all.map(() => all.splice(rng.nextInt(all.length), 1)[0]).slice(0, Math.max(1, numNeurons - 2));
  return { rows: Array.from({ length: numNeurons }, (_, j) => chosen[j] ?? 0), count: chosen.length };
}
