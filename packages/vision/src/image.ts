/** Images in memory, and limits for untrusted images. */
import { CapacityError, FormatError } from '@winnow/tensor';

/** An image with eight bits per channel and rows from top to bottom. */
export interface RgbImage {
  readonly width: number;
  readonly height: number;
  readonly data: Uint8Array; // [height, width, 3]
}

/** Formats of image files. */
export type ImageFormat = 'png' | 'jpeg' | 'webp';

export interface DecodeOptions {
  /** Maximum number of pixels. Default: `maxPixels`. */
  readonly maxPixels?: number;
  /** Name of the image in error messages. Default `image`. */
  readonly name?: string;
}

/** Maximum number of pixels: a photo of 8192 x 6144 fits, which takes 200 MB to decode. */
export const maxPixels: number = 1 << 26;

/** Maximum size of a file in bytes, more than any model needs. */
export const maxFileBytes: number = 1 << 26;

/** @throws {CapacityError} */
export function checkSize(name: string, width: number, height: number, limit: number): void {
  if (width * height <= limit) return;
  throw new CapacityError({ resource: name, needed: width * height, available: limit, unit: 'pixels', source: name });
}

/** The red, green and blue channels of RGBA pixels, as by Pillow's `convert('RGB')`: alpha is dropped, not blended. */
export function withoutAlpha(width: number, height: number, rgba: ArrayLike<number>, name: string): RgbImage {
  if (rgba.length !== 4 * width * height) {
    const message = `expected ${4 * width * height} values, got ${rgba.length}`;
    throw new FormatError({ source: name, field: 'pixels', message });
  }
  const data = new Uint8Array(3 * width * height);
  for (let from = 0, to = 0; to < data.length; from += 4, to += 3) {
    data[to] = rgba[from] as number;
    data[to + 1] = rgba[from + 1] as number;
    data[to + 2] = rgba[from + 2] as number;
  }
  return { width, height, data };
}
