/** Feeds any number of hidden states to a program with a fixed capacity. */
import type { BoundProgram, ProgramBuilder, ProgramTensor } from '@winnow/ops';
import { ShapeError } from '@winnow/tensor';

/** The hidden states `[T, E]` of a run. */
export function inputRows(b: ProgramBuilder, hiddenDim: number): ProgramTensor {
  const x = b.external('x', 'kv', 'f32', [b.capacity('T'), hiddenDim]);
  return b.activation('gather-rows', { x, rows: b.scalar('rows', ['T']) });
}

/**
 * Runs a program over hidden states `[n, E]`, as many at a time as fit.
 * @param read copies the outputs for the hidden states `[begin, end)`
 * @throws {ShapeError} when `x` is not a whole number of hidden states
 */
export async function runRows(
  program: BoundProgram,
  x: Float32Array,
  hiddenDim: number,
  read: (begin: number, end: number) => Promise<void>,
): Promise<void> {
  if (x.length % hiddenDim !== 0) {
    const expected = `hidden states of ${hiddenDim} values`;
    throw new ShapeError({ op: 'feed-forward block', rule: 'x', expected, actual: `${x.length} values` });
  }
  const numTokens = x.length / hiddenDim;
  const rows = program.scalars.slot('rows');
  rows.forEach((_, row) => (rows[row] = row));
  for (let begin = 0; begin < numTokens; begin += rows.length) {
    const end = Math.min(numTokens, begin + rows.length);
    await program.write('x', x.subarray(begin * hiddenDim, end * hiddenDim));
    program.scalars.bind('T', end - begin);
    await program.run();
    await read(begin, end);
  }
}
