/** Positions of patches as fractions of a side, as in SigLIP for images of any size (arXiv:2307.06304 §2.1). */

/** Vector width of `torch.arange` on x86, which rounds the first number of a vector to float32 before it adds the others. */
const lanes = 8;

/** Vectors are computed in pairs; numbers after the last pair are computed one by one. */
const pair = 2 * lanes;

/**
 * The position of each patch along one side of a square, as transformers computes it in float32: the number of boundaries
 * `arange(1/n, 1, 1/n)` that are at most `min(i * (1/n), 1 - 1e-6)`. Mathematically this is `i`; roundings on either side give
 * some patches the position of a neighbor, from n = 25 on. At 26 and 27, the sizes of Idefics3 8B and SmolVLM 2.2B, it is `i`.
 *
 * Source: transformers 5.18.0 modeling_idefics3.py `Idefics3VisionEmbeddings.forward`; torch 2.13.0 RangeFactoriesKernel.cpp
 * `arange_kernel`.
 * @param side n, patches per side
 */
export function bucketPositions(side: number): Int32Array {
  const boundaries = boundariesOf(side);
  const step = Math.fround(1 / side);
  return Int32Array.from({ length: side }, (_, index) => {
    const fraction = Math.min(Math.fround(index * step), Math.fround(1 - 1e-6));
    const above = boundaries.findIndex((boundary) => boundary > fraction);
    return above < 0 ? boundaries.length : above;
  });
}

/** `torch.arange(1 / side, 1, 1 / side)`: whole pairs of vectors have rounded bases, the rest is computed in float64. */
function boundariesOf(side: number): Float32Array {
  const step = 1 / side;
  const length = Math.ceil((1 - step) / step);
  const numInVectors = length - (length % pair);
  return Float32Array.from({ length }, (_, index) => {
    if (index >= numInVectors) return step + step * index;
    const lane = index % lanes;
    return Math.fround(step + step * (index - lane)) + lane * step;
  });
}
