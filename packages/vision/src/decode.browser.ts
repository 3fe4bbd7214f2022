/** Decodes with the browser's own decoder. */
import { FormatError } from '@winnow/tensor';
import { readImageHeader } from './header.js';
import { withoutAlpha, type DecodeOptions, type RgbImage } from './image.js';
import { readUnpremultiplied, type Bitmap, type BitmapOptions, type WebGl } from './unpremultiplied.browser.js';

interface Context {
  drawImage(image: Bitmap, x: number, y: number): void;
  getImageData(x: number, y: number, width: number, height: number): { readonly data: Uint8ClampedArray };
}
/** The part of a browser's global object that is used. */
interface Browser {
  createImageBitmap(file: Blob, options: BitmapOptions): Promise<Bitmap>;
  createImageBitmap(
    bitmap: Bitmap,
    left: number,
    top: number,
    width: number,
    height: number,
    options: BitmapOptions,
  ): Promise<Bitmap>;
  readonly OffscreenCanvas: new (
    width: number,
    height: number,
  ) => {
    getContext(kind: '2d'): Context;
    getContext(kind: 'webgl2'): WebGl | null;
  };
}

/** Keeps the channels as they are in the file. */
const bitmapOptions: BitmapOptions = { premultiplyAlpha: 'none', colorSpaceConversion: 'none' };

/**
 * Decodes a PNG, JPEG or WebP file: 8 bits per channel, the orientation of a photo applied, alpha dropped. Colors are not
 * converted to those of the screen.
 * @throws {FormatError} for another format and a broken file, and for transparent pixels where the browser has no WebGL 2
 * @throws {CapacityError} for an image of more than `maxPixels`, before it is decoded
 */
export async function decodeImage(bytes: Uint8Array, options: DecodeOptions = {}): Promise<RgbImage> {
  const { name = 'image' } = options;
  const { format } = readImageHeader(bytes, options);
  const { createImageBitmap } = globalThis as unknown as Browser;
  let bitmap: Bitmap;
  try {
    bitmap = await createImageBitmap(new Blob([bytes.slice()], { type: `image/${format}` }), bitmapOptions);
  } catch (cause) {
    const message = `expected a ${format.toUpperCase()} file, got one that the browser refuses`;
    throw new FormatError({ source: name, field: 'image data', message }, { cause });
  }
  try {
    const { width, height } = bitmap;
    return withoutAlpha(width, height, await pixelsOf(bitmap, name), name);
  } finally {
    bitmap.close();
  }
}

/** RGBA as in the file. A canvas premultiplies colors by alpha, which preserves only those of opaque pixels. */
async function pixelsOf(bitmap: Bitmap, name: string): Promise<Uint8Array | Uint8ClampedArray> {
  const { createImageBitmap, OffscreenCanvas } = globalThis as unknown as Browser;
  const { width, height } = bitmap;
  const context = new OffscreenCanvas(width, height).getContext('2d');
  context.drawImage(bitmap, 0, 0);
  const { data } = context.getImageData(0, 0, width, height);
  if (isOpaque(data)) return data;
  const gl = new OffscreenCanvas(1, 1).getContext('webgl2');
  if (gl === null) {
    const message = 'expected opaque pixels, since this browser has no WebGL 2 to read others, got transparent ones';
    throw new FormatError({ source: name, field: 'alpha', message });
  }
  return readUnpremultiplied(bitmap, gl, (...tile) => createImageBitmap(bitmap, ...tile, bitmapOptions));
}

function isOpaque(rgba: Uint8ClampedArray): boolean {
  for (let alpha = 3; alpha < rgba.length; alpha += 4) if (rgba[alpha] !== 255) return false;
  return true;
}
