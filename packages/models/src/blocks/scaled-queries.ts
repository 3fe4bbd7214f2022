/** Queries that are scaled by their position. */
import type { ProgramTensor } from '@winnow/ops';
import type { DecoderStep } from '../program/decoder-program.js';

/** Name of the constant with the factor of each position. */
export const queryScalesName = 'query.scales';

/** Queries `[T, N, H]` times the factor of their position; positions beyond the constant have its last factor. */
export function scaledQueries({ b, constant, positions }: DecoderStep, query: ProgramTensor): ProgramTensor {
  const factors = constant(queryScalesName);
  const [numFactors] = factors.shape as readonly [number];
  const tokens = b.activation('clamp-positions', { positions }, { limit: numFactors - 1 });
  const table = b.reshape(factors, [numFactors, 1]);
  const scales = b.activation('embedding-lookup', { table, tokens });
  const [numTokens, numHeads, headDim] = query.shape as readonly ['T', number, number];
  const rows = b.activation('scale-rows', { x: b.reshape(query, [numTokens, numHeads * headDim]), scales });
  return b.reshape(rows, [numTokens, numHeads, headDim]);
}
