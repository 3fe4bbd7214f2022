/** Runs of tokens of one sequence, and the rows of recurrent state that each begins with and leaves. */

export let runBegin: i32 = 0;
export let runEnd: i32 = 0;
/** Negative when the sequence starts fresh. */
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
  const sequence = sequenceAt(runBegin);
  do runEnd += 1;
  while (runEnd < numTokens && sequenceAt(runEnd) === sequence);
  stateFrom = load<i32>(rowsFrom + (sequence << 2));
  stateTo = load<i32>(rowsTo + (sequence << 2));
  return true;
}

function sequenceAt(token: i32): usize {
  return <usize>load<u32>(sequences + ((<usize>token) << 2));
}
