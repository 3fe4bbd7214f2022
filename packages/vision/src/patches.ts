/** Arranges pixels as the rows that a patch embedding multiplies. */
import { ShapeError } from '@winnow/tensor';
import type { RgbImage } from './image.js';

/** `(value * rescale - mean) / std` per channel. */
export interface Normalization {
  readonly rescale: number;
  readonly mean: readonly number[];
  readonly std: readonly number[];
}

/** The normalized value of each of the 256 values of a channel: `[3, 256]`. */
function tableOf({ rescale, mean, std }: Normalization): Float32Array {
  const table = new Float32Array(3 * 256);
  for (let channel = 0; channel < 3; channel++) {
    for (let value = 0; value < 256; value++) {
      table[channel * 256 + value] = (value * rescale - (mean[channel] as number)) / (std[channel] as number);
    }
  }
  return table;
}

/**
 * Normalized pixels by patch, so that a convolution whose stride equals its size becomes a matrix product with `[E, 3 P P]`.
 *
 * Shapes: image `[height, width, 3]`, result `[Y X, 3 F P P]` with P = `patchSize`, F = `numFrames`, Y = `floor(height / P)`,
 * X = `floor(width / P)`: patches in row-major order, each with all red, then all green and all blue values. Pixels beyond the last
 * patch are dropped, as by a convolution.
 * @param numFrames number of times that the values of a channel are repeated, for convolutions over frames of videos. Default 1
 * @throws {ShapeError} for an image that is smaller than a patch
 */
export function patchesOf(
  image: RgbImage,
  patchSize: number,
  normalization: Normalization,
  numFrames = 1,
): Float32Array {
  const { width, height, data } = image;
  const [rows, columns] = [Math.floor(height / patchSize), Math.floor(width / patchSize)];
  if (rows === 0 || columns === 0) {
    const expected = `at least ${patchSize} x ${patchSize}`;
    throw new ShapeError({ op: 'patches', rule: 'size of the image', expected, actual: `${width} x ${height}` });
  }
  const table = tableOf(normalization);
  const patches = new Float32Array(3 * rows * columns * numFrames * patchSize ** 2);
  let to = 0;
  for (let top = 0; top < rows * patchSize; top += patchSize) {
    for (let left = 0; left < columns * patchSize; left += patchSize) {
      for (let channel = 0; channel < 3; channel++) {
        const begin = to;
        for (let y = top; y < top + patchSize; y++) {
          for (let x = left; x < left + patchSize; x++) {
            patches[to++] = table[channel * 256 + (data[3 * (y * width + x) + channel] as number)] as number;
          }
        }
        const end = to;
        for (let frame = 1; frame < numFrames; frame++, to += end - begin) patches.copyWithin(to, begin, end);
      }
    }
  }
  return patches;
}
