/** Records of chunked prefill with a memory of heavy hitters, whose state sequences carry. */
import type { LayerAttention, ProgramBuilder, ProgramTensor, SequenceStates } from '@winnow/ops';
import { ArgumentError } from '@winnow/tensor';
import type { H2oBudgets } from '../families/h2o-memory.js';

function statesOf(site: LayerAttention): SequenceStates {
  const states = site.states?.();
  if (states !== undefined) return states;
  throw new ArgumentError({
    argument: 'attention: h2o-prefill',
    expected: 'a program that keeps states of sequences',
    actual: 'none',
  });
}

interface H2oTensors {
  readonly memory: ProgramTensor;
  readonly memoryScores: ProgramTensor;
  readonly chunkScores: ProgramTensor;
  readonly progress: ProgramTensor;
}

function h2oTensors(b: ProgramBuilder, site: LayerAttention, chunk: number, budgets: H2oBudgets): H2oTensors {
  const { numStates } = statesOf(site);
  const K = Number(site.kv.keys.shape[1]);
  const capacity = budgets.sinks + budgets.local + budgets.heavy;
  const name = (what: string): string => `state.${site.layer}.${what}`;
  return {
    memory: b.external(name('h2oMemory'), 'kv', 'i32', [numStates, K, capacity]),
    memoryScores: b.external(name('h2oScores'), 'kv', 'f32', [numStates, K, capacity]),
    chunkScores: b.external(name('h2oChunk'), 'kv', 'f32', [numStates, K, chunk]),
    progress: b.external(name('h2oProgress'), 'kv', 'i32', [numStates, K, 2]),
  };
}

/** Attention of prompts: `y` and what else the op tells, the states left out. */
export function writeH2o(
  b: ProgramBuilder,
  site: LayerAttention,
  attributes: Readonly<Record<string, number | boolean>>,
  chunk: number,
  budgets: H2oBudgets,
): Readonly<Record<string, ProgramTensor>> {
  const { q, positions, sequences, kv } = site;
  const { stateFrom, stateTo } = statesOf(site);
  const inputs = { q, positions, sequences, ...kv, stateFrom, stateTo };
  const updated = { ...h2oTensors(b, site, chunk, budgets) };
  const outputs = b.append('h2o-attention', inputs, { ...attributes, chunk, ...budgets }, updated);
  return Object.fromEntries(Object.entries(outputs).filter(([name]) => !Object.hasOwn(updated, name)));
}

/** For steps that attend in another way: the state goes on as it is, and takes note of their tokens later. */
export function carryH2o(b: ProgramBuilder, site: LayerAttention, chunk: number, budgets: H2oBudgets): void {
  const { sequences } = site;
  const { stateFrom, stateTo } = statesOf(site);
  for (const state of Object.values(h2oTensors(b, site, chunk, budgets))) {
    b.append('state-carry', { sequences, stateFrom, stateTo }, {}, { state });
  }
}
