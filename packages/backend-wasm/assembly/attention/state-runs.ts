/** Runs of tokens of one sequence, and the rows that each run reads its recurrent state from and writes it to. */
import { intAt } from '../runtime/arrays';

export let runBegin: i32 = 0;
export let runEnd: i32 = 0;
/** Row of the initial state; negative for a new sequence. */
export let stateFrom: i32 = 0;
export let stateTo: i32 = 0;

let sequences: usize = 0;
let rowsFrom: usize = 0;
let rowsTo: usize = 0;
let numTokens: i32 = 0;

export function openRuns(sequenceOfToken: usize, fromOfSequence: usize, toOfSequence: usize, count: i32): void {
  sequences = sequenceOfToken;
  rowsFrom = fromOfSequence;
  rowsTo = toOfSequence;
  numTokens = count;
  runEnd = 0;
}

/** Moves to the next run; false after the last one. */
export function nextRun(): bool {
  if (runEnd >= numTokens) return false;
  runBegin = runEnd;
  const sequence = intAt(sequences, runBegin);
  do runEnd += 1;
  while (runEnd < numTokens && intAt(sequences, runEnd) === sequence);
  stateFrom = intAt(rowsFrom, sequence);
  stateTo = intAt(rowsTo, sequence);
  return true;
}

/** Copies `sizeBytes` at `offset` from the initial state row of the run to its final one; zeros for a new sequence. */
export function carryState(states: usize, rowBytes: usize, offset: usize, sizeBytes: usize): void {
  const to = states + <usize>stateTo * rowBytes + offset;
  if (stateFrom < 0) memory.fill(to, 0, sizeBytes);
  else if (stateFrom !== stateTo) memory.copy(to, states + <usize>stateFrom * rowBytes + offset, sizeBytes);
}
