/** Selects the weights to quantize, as llama.cpp does, with a reason for each weight that keeps its type. */
import { weightDTypes } from '@winnow/ops';
import { ArgumentError, canEncode, dtypeInfo, type DType } from '@winnow/tensor';
import { reencodedView } from './reencoded-view.js';
import type { Weight } from './weights.js';

/** Types that weights can be converted to. */
export const quantizeTypes: readonly DType[] = weightDTypes.filter(
  (dtype) => canEncode(dtype) && dtype !== 'f64' && !/^i\d/.test(dtype),
);

/** A matrix that keeps its type. */
export interface KeptWeight {
  readonly name: string;
  readonly dtype: DType;
  readonly reason: string;
}

export interface QuantizeOptions {
  readonly dtype: DType;
  /** Whether the output matrix is the embedding table. */
  readonly isTied: boolean;
  /** Requantize quantized weights, which accumulates the errors of both types. Default false: they keep their type. */
  readonly allowRequantize?: boolean;
}

/** Small sensitive matrices, or matrices that are not read by linear layers. */
const alwaysFloat =
  /(norm|position_embd|token_types|ffn_gate_inp|ffn_gate_inp_shexp|ssm_conv1d|shortconv\.conv|ssm_alpha|ssm_beta)\.weight$/;

/** @throws {ArgumentError} for a type that weights cannot be converted to */
export function checkQuantizeType(argument: string, dtype: string): void {
  if ((quantizeTypes as readonly string[]).includes(dtype)) return;
  throw new ArgumentError({ argument, expected: quantizeTypes.join(' | '), actual: String(dtype) });
}

/**
 * The type that a weight is stored in: `dtype` for linear layers and embeddings, q6_K for the output matrix if `dtype`
 * is smaller, and its own for vectors and small sensitive matrices (norms, routers, positions, convolutions).
 * @returns a reason when a matrix cannot be converted; `wouldRequantize` when `allowRequantize` would permit it
 */
export function quantizedDType(
  { name, shape, dtype: own, isFloat }: Pick<Weight, 'name' | 'shape' | 'dtype' | 'isFloat'>,
  { dtype, isTied, allowRequantize = false }: QuantizeOptions,
): { readonly dtype: DType; readonly reason?: string; readonly wouldRequantize?: true } {
  if (shape.length < 2 || isFloat === true || alwaysFloat.test(name)) return { dtype: own };
  const isBlocks = (type: DType): boolean => dtypeInfo(type).blockSize > 1;
  if (isBlocks(own) && isBlocks(dtype) && own !== dtype && !allowRequantize) {
    return { dtype: own, reason: `already quantized as ${own}`, wouldRequantize: true };
  }
  const rowLength = shape.at(-1) as number;
  const fits = (type: DType): boolean => rowLength % dtypeInfo(type).blockSize === 0;
  const isOutput = name === 'output.weight' || (isTied && name === 'token_embd.weight');
  const isCoarse = isBlocks(dtype) && dtype !== 'q8_0' && dtype !== 'q6_K';
  if (isOutput && isCoarse) {
    const finer = (['q6_K', 'q8_0'] as const).find(fits);
    if (finer !== undefined) return { dtype: finer };
  }
  if (fits(dtype)) return { dtype };
  const reason = `rows of ${rowLength} values are not whole blocks of ${dtypeInfo(dtype).blockSize}`;
  return { dtype: own, reason };
}

/**
 * Replaces the weights by views that quantize them on read.
 * @returns the matrices that keep their type although conversion was requested
 * @throws {ArgumentError} for a type that weights cannot be converted to
 */
export function quantizeWeights(weights: Map<string, Weight>, options: QuantizeOptions): KeptWeight[] {
  checkQuantizeType('quantize', options.dtype);
  const kept: KeptWeight[] = [];
  for (const [name, weight] of weights) {
    const { dtype, reason } = quantizedDType(weight, options);
    if (reason !== undefined) kept.push({ name, dtype: weight.dtype, reason });
    if (dtype === weight.dtype) continue;
    const stored = reencodedView(weight.stored, dtype);
    weights.set(name, { ...weight, dtype, stored, sizeBytes: stored.sizeBytes });
  }
  return kept;
}
