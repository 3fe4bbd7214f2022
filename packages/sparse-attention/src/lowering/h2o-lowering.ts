/** Lowers chunked prefill with a memory of heavy hitters, which is per-sequence state. */
import type { LayerAttention, ProgramBuilder, ProgramTensor } from '@winnow/ops';
import type { H2oBudgets } from '../policy/costs.js';
import { statesOf } from './states.js';

const argument = 'attention: h2o-prefill';

interface H2oTensors {
  readonly memory: ProgramTensor;
  readonly memoryScores: ProgramTensor;
  readonly chunkScores: ProgramTensor;
  readonly progress: ProgramTensor;
}

function h2oTensors(b: ProgramBuilder, request: LayerAttention, chunk: number, budgets: H2oBudgets): H2oTensors {
  const { numStates } = statesOf(request, argument);
  const K = Number(request.kv.keys.shape[1]);
  const capacity = budgets.sinks + budgets.local + budgets.heavy;
  const name = (what: string): string => `state.${request.layer}.${what}`;
  return {
    memory: b.external(name('h2oMemory'), 'kv', 'i32', [numStates, K, capacity]),
    memoryScores: b.external(name('h2oScores'), 'kv', 'f32', [numStates, K, capacity]),
    chunkScores: b.external(name('h2oChunk'), 'kv', 'f32', [numStates, K, chunk]),
    progress: b.external(name('h2oProgress'), 'kv', 'i32', [numStates, K, 2]),
  };
}

/** Prefill attention: `y` and the other outputs of the op, without the states. */
export function lowerH2o(
  b: ProgramBuilder,
  request: LayerAttention,
  attributes: Readonly<Record<string, number | string | boolean>>,
  chunk: number,
  budgets: H2oBudgets,
): Readonly<Record<string, ProgramTensor>> {
  const { q, positions, sequences, kv } = request;
  const { stateFrom, stateTo } = statesOf(request, argument);
  const inputs = { q, positions, sequences, ...kv, stateFrom, stateTo };
  const { sinks, local, heavy } = budgets;
  const updated = { ...h2oTensors(b, request, chunk, budgets) };
  const outputs = b.append('h2o-attention', inputs, { ...attributes, chunk, sinks, local, heavy }, updated);
  return Object.fromEntries(Object.entries(outputs).filter(([name]) => !Object.hasOwn(updated, name)));
}

/** For steps with another policy: carries the state over unchanged. */
export function carryH2o(b: ProgramBuilder, request: LayerAttention, chunk: number, budgets: H2oBudgets): void {
  const { sequences } = request;
  const { stateFrom, stateTo } = statesOf(request, argument);
  for (const state of Object.values(h2oTensors(b, request, chunk, budgets))) {
    b.append('state-carry', { sequences, stateFrom, stateTo }, {}, { state });
  }
}
