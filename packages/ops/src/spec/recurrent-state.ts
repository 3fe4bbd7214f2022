/**
 * State of a sequence that replaces a cache of all its tokens. A state buffer has usage `kv` and one row per state:
 * `[R, ...]`. A step reads the state of sequence `b` from row `stateFrom[b]`, or starts with zeros if that is negative,
 * and writes the new state to row `stateTo[b]`. Both are often the same row. With a different target, the source is
 * unchanged and serves as a snapshot for later steps, without a copy.
 *
 * The tokens of a sequence are contiguous in a step, in order. Sequences without tokens change nothing. No row may be
 * the target of two sequences, or the target of one and the source of another.
 */
import { i32Only } from './dtypes.js';
import type { InputSpec, TensorView } from './op-spec.js';

/** Inputs of every op with a recurrent state: T tokens, B sequences. */
export const stateInputs: Readonly<Record<string, InputSpec>> = {
  sequences: { dtypes: i32Only, shape: 'T' },
  stateFrom: { dtypes: i32Only, shape: 'B' },
  stateTo: { dtypes: i32Only, shape: 'B' },
};

/** Calls `visit` with the tokens `[begin, end)` of each sequence and the rows of its state. */
export function eachSequence(
  { sequences, stateFrom, stateTo }: Readonly<Record<string, TensorView>>,
  visit: (begin: number, end: number, from: number, to: number) => void,
): void {
  const numTokens = sequences.shape[0];
  for (let begin = 0, end = 0; begin < numTokens; begin = end) {
    const sequence = sequences.data[begin];
    while (end < numTokens && sequences.data[end] === sequence) end++;
    visit(begin, end, stateFrom.data[sequence], stateTo.data[sequence]);
  }
}
