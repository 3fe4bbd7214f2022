/** The per-sequence states of a program, for policies that need them. */
import type { LayerAttention, SequenceStates } from '@winnow/ops';
import { ArgumentError } from '@winnow/tensor';

/** @throws {ArgumentError} that names `argument` in programs without states */
export function statesOf(request: LayerAttention, argument: string): SequenceStates {
  const states = request.states?.();
  if (states !== undefined) return states;
  throw new ArgumentError({ argument, expected: 'a program with per-sequence state', actual: 'none' });
}
