/** Queries that are scaled by their position. */
import type { ProgramTensor } from '@winnow/ops';
import type { DecoderStep } from '../program/decoder-program.js';

/** Name of the constant with the factor of each position. */
export const queryScalesName = 'query.scales';

const scales = new WeakMap<DecoderStep, ProgramTensor>();

/** The factor of each token of a step, `[T, 1]`, which its layers share; positions beyond the constant have its last factor. */
function scalesOf(step: DecoderStep): ProgramTensor {
  const known = scales.get(step);
  if (known !== undefined) return known;
  const { b, positions } = step;
  const factors = step.constant(queryScalesName);
  const [numFactors] = factors.shape as readonly [number];
  const tokens = b.activation('clamp-positions', { positions }, { limit: numFactors - 1 });
  const table = b.reshape(factors, [numFactors, 1]);
  const found = b.activation('embedding-lookup', { table, tokens });
  scales.set(step, found);
  return found;
}

/** Queries `[T, N, H]` times the factor of their position. */
export function scaledQueries(step: DecoderStep, query: ProgramTensor): ProgramTensor {
  const { b } = step;
  const [numTokens, numHeads, headDim] = query.shape as readonly ['T', number, number];
  const x = b.reshape(query, [numTokens, numHeads * headDim]);
  return b.reshape(b.activation('scale-rows', { x, scales: scalesOf(step) }), [numTokens, numHeads, headDim]);
}
