/** Scaling of queries by their position. */
import type { ProgramTensor } from '@winnow/ops';
import type { ModelFile } from '../program/architecture.js';
import type { DecoderConfig } from '../program/config.js';
import type { DecoderStep } from '../program/decoder-program.js';

/** Name of the constant that holds the factor of each position. */
const queryScalesName = 'query.scales';

/** Limits the constant, one factor per position, to 64 MiB; Llama 4 Scout has 10,485,760 positions. */
const maxPositions = 2 ** 24;

/** The factor of the queries at position t: `1 + scale * ln(1 + floor((t + offset) / length))`. */
export interface QueryTemperature {
  readonly scale: number;
  /** Number of positions with the same factor. */
  readonly length: number;
  readonly offset: number;
}

/**
 * The constant that `scaledQueries` reads.
 * @throws {FormatError} for a context that is too long for it
 */
export function queryScales(
  { format, fields }: ModelFile,
  { architecture, contextLength }: DecoderConfig,
  { scale, length, offset }: QueryTemperature,
): readonly [name: string, values: Float32Array] {
  if (contextLength > maxPositions) {
    const name = format === 'gguf' ? `${architecture}.context_length` : 'max_position_embeddings';
    throw fields.refusal(name, `at most ${maxPositions} positions`, contextLength);
  }
  const values = new Float32Array(contextLength);
  for (let begin = 0; begin < contextLength;) {
    const step = Math.floor((begin + offset) / length);
    const end = (step + 1) * length - offset;
    values.fill(1 + scale * Math.log1p(step), begin, end);
    begin = end;
  }
  return [queryScalesName, values];
}

const scales = new WeakMap<DecoderStep, ProgramTensor>();

/** The factor of each token, `[T, 1]`, shared by the layers of a step; positions beyond the constant get its last factor. */
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
