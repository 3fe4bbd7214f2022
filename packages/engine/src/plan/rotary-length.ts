/** Contexts of models whose RoPE depends on the length of the sequence. */
import { rotaryLengthsOf, type RopeConfig, type RotaryLengths } from '@winnow/models';
import { ArgumentError } from '@winnow/tensor';

/** The rules by which sequences of that context rotate, if they depend on their length. */
export function rotaryLengthsIn(rope: RopeConfig | undefined, contextSize: number): RotaryLengths | undefined {
  const lengths = rope && rotaryLengthsOf(rope);
  return lengths !== undefined && contextSize > lengths.contextLength ? lengths : undefined;
}

/** @throws {ArgumentError} for a context beyond the lengths for which the frequencies are defined */
export function checkRotaryLength(rope: RopeConfig | undefined, contextSize: number): void {
  const maxLength = rotaryLengthsIn(rope, contextSize)?.maxLength ?? Infinity;
  if (contextSize <= maxLength) return;
  const expected = `at most ${maxLength}, the trained context times the factor of its dynamic RoPE`;
  throw new ArgumentError({ argument: 'context', expected, actual: String(contextSize) });
}
