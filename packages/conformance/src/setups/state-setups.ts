/** Steps over recurrent states: the tokens of each sequence, and the source and target of each state. */
import type { CaseTensor } from '../kernel-case.js';
import { ints } from '../values.js';

export interface StateSetup {
  readonly name: string;
  /** Tokens of each sequence. */
  readonly counts: readonly number[];
  /** Row of each sequence's state before the step, negative for a fresh one. */
  readonly from: readonly number[];
  readonly to: readonly number[];
}

/** Rows of every state buffer. */
export const numStateRows = 6;

export const stateSetups: readonly StateSetup[] = [
  { name: 'no token', counts: [0], from: [1], to: [2] },
  { name: '1 token, fresh', counts: [1], from: [-1], to: [0] },
  { name: '1 token, in place', counts: [1], from: [5], to: [5] },
  { name: '2 tokens, to another row', counts: [2], from: [3], to: [1] },
  { name: '9 tokens, in place', counts: [9], from: [2], to: [2] },
  { name: '11 tokens, fresh', counts: [11], from: [-3], to: [4] },
  { name: '4 sequences', counts: [3, 1, 0, 5], from: [2, -1, 0, 1], to: [2, 4, 5, 3] },
];

/** The inputs of a step. */
export function stateTensors({ counts, from, to }: StateSetup): Readonly<Record<string, CaseTensor>> {
  const sequences = counts.flatMap((count, sequence) => new Array<number>(count).fill(sequence));
  return {
    sequences: ints([sequences.length], sequences, 0),
    stateFrom: ints([counts.length], from),
    stateTo: ints([counts.length], to),
  };
}

export function numTokensOf({ counts }: StateSetup): number {
  return counts.reduce((sum, count) => sum + count, 0);
}

/** Tokens `[begin, end)` of each sequence that has any. */
export function tokenRanges({
  counts,
  from,
  to,
}: StateSetup): { readonly begin: number; readonly end: number; readonly from: number; readonly to: number }[] {
  let begin = 0;
  const ranges = counts.map((count, sequence) => {
    begin += count;
    return { begin: begin - count, end: begin, from: from[sequence], to: to[sequence] };
  });
  return ranges.filter((range) => range.begin < range.end);
}
