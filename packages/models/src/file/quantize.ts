/** Selects the weights to quantize, as llama.cpp does, with a reason for each weight that keeps its type. */
import { weightDTypes } from '@winnow/ops';
import { ArgumentError, canEncode, dtypeInfo, type DType } from '@winnow/tensor';
import { reencodedView } from './reencoded-view.js';
import type { Weight } from './weights.js';

/** Types that weights can be converted to. */
export const quantizeTypes: readonly DType[] = weightDTypes.filter(
  (dtype) => canEncode(dtype) && dtype !== 'f64' && !/^i\d/.test(dtype),
);

/** A recipe: most matrices get `dtype`, the sensitive ones `finer`. */
interface Recipe {
  readonly dtype: DType;
  readonly finer: DType;
}

/** A type for all matrices, or the name of a recipe, which gives sensitive ones a finer type. */
export type QuantizeType = DType | 'q4_K_M';

const recipes: Readonly<Partial<Record<QuantizeType, Recipe>>> = { q4_K_M: { dtype: 'q4_K', finer: 'q6_K' } };

/** The type of most matrices. */
export function mainDType(type: QuantizeType): DType {
  return recipes[type]?.dtype ?? (type as DType);
}

/**
 * Whether a recipe gives the matrix its finer type. As in llama.cpp, these are the embedding table and the output matrix, and the
 * value and down matrices of the first and last eighth of the layers and of every third layer in between.
 */
function isSensitive(name: string, numLayers: number): boolean {
  if (name === 'token_embd.weight' || name === 'output.weight') return true;
  const layer = Number(/^blk\.(\d+)\.(?:attn_v|ffn_down|ffn_down_exps)\.weight$/.exec(name)?.[1] ?? Number.NaN);
  const eighth = Math.floor(numLayers / 8);
  return layer < eighth || layer >= Math.floor((7 * numLayers) / 8) || (layer - eighth) % 3 === 2;
}

/** A matrix that keeps its type. */
export interface KeptWeight {
  readonly name: string;
  readonly dtype: DType;
  readonly reason: string;
}

export interface QuantizeOptions {
  readonly dtype: QuantizeType;
  /** Number of layers, on which the choice of a recipe depends. */
  readonly numLayers: number;
  /** Whether the output matrix is the embedding table. */
  readonly isTied: boolean;
  /** Requantize quantized weights, which accumulates the errors of both types. Default false: they keep their type. */
  readonly allowRequantize?: boolean;
}

/** Small sensitive matrices, or matrices that are not read by linear layers. */
const alwaysFloat =
  /(norm|position_embd|token_types|sparse_linear|ffn_gate_inp(?:_shexp)?|ssm_conv1d|shortconv\.conv|ssm_(?:alpha|beta|ba))\.weight$/;

/** Matrices that mix streams of hidden states, and one that computes the inputs of all layers, as in llama.cpp. */
const mixing = /(altup_\w+|laurel_[lr]|per_layer_model_proj)\.weight$/;

/** @throws {ArgumentError} for a type that weights cannot be converted to */
export function checkQuantizeType(argument: string, dtype: string): void {
  const types: readonly string[] = [...quantizeTypes, ...Object.keys(recipes)];
  if (types.includes(dtype)) return;
  throw new ArgumentError({ argument, expected: types.join(' | '), actual: String(dtype) });
}

/**
 * The type that a weight is stored in: `dtype` for linear layers and embeddings, q6_K for the output matrix if `dtype`
 * is smaller, and its own for vectors and small sensitive matrices (norms, routers, positions, convolutions). A recipe
 * chooses by the name of the matrix.
 * @returns the type, with a reason when a matrix keeps its own; `wouldRequantize` when `allowRequantize` would convert it
 */
export function quantizedDType(
  { name, shape, dtype: own, isFloat }: Pick<Weight, 'name' | 'shape' | 'dtype' | 'isFloat'>,
  { dtype: type, isTied, numLayers, allowRequantize = false }: QuantizeOptions,
): { readonly dtype: DType; readonly reason?: string; readonly wouldRequantize?: true } {
  if (shape.length < 2 || isFloat === true || alwaysFloat.test(name) || mixing.test(name)) return { dtype: own };
  const recipe = recipes[type];
  const dtype = recipe !== undefined && isSensitive(name, numLayers) ? recipe.finer : mainDType(type);
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
 * @returns the matrices that could not be converted and keep their type
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
