/** Sizes of a layer and its cache. */
import { checkKvDTypes, type KvDTypes, type KvRows } from '@winnow/ops';
import { ArgumentError, type DType, leastCommonMultiple, ShapeError, type Tensor3 } from '@winnow/tensor';

export interface LayerShape extends KvRows {
  readonly numHeads: number;
  /** Query heads per KV head. */
  readonly groupSize: number;
  /** Factor of `q . k`. */
  readonly scale: number;
  readonly numBlocks: number;
  /** Maximum number of tokens per run. */
  readonly maxTokens: number;
}

export interface LayerSizes {
  /** Query heads, a multiple of the KV heads. Query head h reads KV head `floor(h / (numHeads / numKvHeads))`. */
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  /** Default: `headDim`. */
  readonly valueDim?: number | undefined;
  /** Factor of `q . k`. Default: `1 / sqrt(headDim)`. */
  readonly scale?: number | undefined;
  /** The dtype of keys and values, or one for each. Default: f32. */
  readonly dtype?: DType | KvDTypes | undefined;
  /** Maximum number of tokens per run; longer calls take several runs. Default: 256. */
  readonly maxTokens?: number | undefined;
}

/** Tokens per cache block unless policies need another size. */
const usualBlockSize = 64;

/**
 * @param partSizes tokens of the parts that policies divide the cache into
 * @param maxTokens of one run, where a ring says less than the sizes
 * @throws {ArgumentError | ShapeError} for impossible sizes
 */
export function layerShape(
  sizes: LayerSizes,
  capacity: number,
  partSizes: readonly number[],
  maxTokens: number = sizes.maxTokens ?? 256,
): LayerShape {
  const { numHeads, numKvHeads, headDim, valueDim = headDim } = sizes;
  const { scale = 1 / Math.sqrt(headDim) } = sizes;
  const dtype = checkKvDTypes('dtype', sizes.dtype ?? 'f32');
  for (const [argument, value] of Object.entries({ capacity, numHeads, numKvHeads, headDim, valueDim, maxTokens })) {
    if (Number.isSafeInteger(value) && value > 0) continue;
    throw new ArgumentError({ argument, expected: 'a positive integer', actual: String(value) });
  }
  if (numHeads % numKvHeads !== 0) {
    const expected = `a multiple of ${numKvHeads} KV heads`;
    throw new ShapeError({ op: 'attention', rule: 'query heads', expected, actual: String(numHeads) });
  }
  const unit = partSizes.reduce(leastCommonMultiple, 1);
  const blockSize = unit * Math.max(1, Math.floor(usualBlockSize / unit));
  return {
    ...{ numHeads, numKvHeads, groupSize: numHeads / numKvHeads, headDim, valueDim, scale, dtype },
    ...{ blockSize, numBlocks: Math.ceil(capacity / blockSize), maxTokens: Math.min(maxTokens, capacity) },
  };
}

/** @throws {ShapeError} unless a tensor has the given tokens and heads */
export function checkTensor(name: string, tensor: Tensor3, numTokens: number, numHeads: number, dim: number): void {
  if (tensor.seqLen === numTokens && tensor.numHeads === numHeads && tensor.headDim === dim) return;
  const [expected, actual] = [`[${numTokens}, ${numHeads}, ${dim}]`, `[${tensor.shape.join(', ')}]`];
  throw new ShapeError({ op: 'attention', rule: name, expected, actual });
}
