/** Processed images: the tiles that an encoder gets. */
import type { RgbImage } from './image.js';

/** An image as the tiles that an encoder gets. */
export interface ProcessedImage {
  readonly tiles: readonly RgbImage[];
  /** Tiles are the cells of a grid in row-major order, followed by the whole image; 0 if there is only the whole image. */
  readonly rows: number;
  readonly columns: number;
  /** Width and height of the original image in pixels. */
  readonly width: number;
  readonly height: number;
}

/** A processor without normalization. */
export interface Resizing {
  readonly tileSize: number;
  process(image: RgbImage, numImages: number): Omit<ProcessedImage, 'width' | 'height'>;
}

/** A square of an image that begins at a column and a row, either of which may be outside; zeros beyond the image. */
export function cropped({ width, height, data }: RgbImage, left: number, top: number, size: number): RgbImage {
  const square = new Uint8Array(3 * size * size);
  const [begin, end] = [Math.max(0, left), Math.min(width, left + size)];
  if (begin >= end) return { width: size, height: size, data: square };
  for (let y = Math.max(0, top); y < Math.min(height, top + size); y++) {
    const row = data.subarray(3 * (y * width + begin), 3 * (y * width + end));
    square.set(row, 3 * ((y - top) * size + begin - left));
  }
  return { width: size, height: size, data: square };
}
