/** Delta correction: dense attention at every n-th query of a prompt corrects the sparse attention of its neighbors. */
import type { Attributes, LayerAttention, ProgramBuilder, ProgramTensor } from '@winnow/ops';
import { ArgumentError } from '@winnow/tensor';
import { deltaOf } from '../policy/fields.js';
import type { AttentionPolicy } from '../policy/kinds.js';
import { statesOf } from './states.js';

const argument = 'attention: delta';

interface DeltaTensors {
  readonly anchor: ProgramTensor;
  readonly difference: ProgramTensor;
}

function deltaTensors(b: ProgramBuilder, request: LayerAttention): DeltaTensors {
  const { numStates } = statesOf(request, argument);
  const numHeads = Number(request.q.shape[1]);
  const valueDim = Number(request.kv.values.shape[3]);
  const name = (what: string): string => `state.${request.layer}.${what}`;
  return {
    anchor: b.external(name('deltaAnchor'), 'kv', 'i32', [numStates, 1, 1]),
    difference: b.external(name('deltaDifference'), 'kv', 'f32', [numStates, numHeads, valueDim]),
  };
}

/**
 * Appends the correction of `x`, the output of a policy. Other outputs stay; `densePairs` are the additional keys of each
 * query head, `[T]`.
 */
export function correctOutputs(
  b: ProgramBuilder,
  request: LayerAttention,
  policy: AttentionPolicy,
  outputs: Readonly<Record<string, ProgramTensor>>,
): Readonly<Record<string, ProgramTensor>> {
  const delta = deltaOf(policy);
  if (delta === 0) return outputs;
  const { q, positions, sequences, kv, scale, window, softCap } = request;
  const { stateFrom, stateTo } = statesOf(request, argument);
  const inputs = { q, positions, sequences, ...kv, x: outputs['y'] as ProgramTensor, stateFrom, stateTo };
  const attributes: Attributes = { scale, window, softCap, delta };
  const { y, pairs } = b.append('delta-correction', inputs, attributes, { ...deltaTensors(b, request) });
  return { ...outputs, y: y as ProgramTensor, densePairs: pairs as ProgramTensor };
}

/** For steps of another phase: carries the state over unchanged. */
export function carryDelta(b: ProgramBuilder, request: LayerAttention): void {
  const { sequences } = request;
  const { stateFrom, stateTo } = statesOf(request, argument);
  for (const state of Object.values(deltaTensors(b, request))) {
    b.append('state-carry', { sequences, stateFrom, stateTo }, {}, { state });
  }
}

/** @throws {ArgumentError} for a correction of bidirectional attention */
export function checkDeltaCausal(policy: AttentionPolicy, causal: boolean): void {
  if (causal || deltaOf(policy) === 0) return;
  throw new ArgumentError({ argument, expected: '0 in bidirectional attention', actual: String(deltaOf(policy)) });
}
