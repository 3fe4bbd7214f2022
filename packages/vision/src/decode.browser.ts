/** Decodes with the browser's own decoder. */
import { FormatError } from '@winnow/tensor';
import { readImageHeader } from './header.js';
import { withoutAlpha, type DecodeOptions, type RgbImage } from './image.js';

interface Bitmap {
  readonly width: number;
  readonly height: number;
  close(): void;
}
interface Context {
  drawImage(image: Bitmap, x: number, y: number): void;
  getImageData(x: number, y: number, width: number, height: number): { readonly data: Uint8ClampedArray };
}
/** What browsers have. */
interface Browser {
  createImageBitmap(file: Blob, options: Readonly<Record<string, string>>): Promise<Bitmap>;
  readonly OffscreenCanvas: new (width: number, height: number) => { getContext(kind: '2d'): Context };
}

/**
 * Decodes a PNG, JPEG or WebP file: 8 bits per channel, the orientation of a photo applied, alpha dropped. Colors are not
 * converted to those of the screen.
 * @throws {FormatError} for another format and a broken file
 * @throws {CapacityError} for an image of more than `maxPixels`, before it is decoded
 */
export async function decodeImage(bytes: Uint8Array, options: DecodeOptions = {}): Promise<RgbImage> {
  const { name = 'image' } = options;
  const { format } = readImageHeader(bytes, options);
  const { createImageBitmap, OffscreenCanvas } = globalThis as unknown as Browser;
  let bitmap: Bitmap;
  try {
    const blob = new Blob([bytes.slice()], { type: `image/${format}` });
    bitmap = await createImageBitmap(blob, { premultiplyAlpha: 'none', colorSpaceConversion: 'none' });
  } catch (cause) {
    const message = `expected a ${format.toUpperCase()} file, got one that the browser refuses`;
    throw new FormatError({ source: name, field: 'image data', message }, { cause });
  }
  try {
    const { width, height } = bitmap;
    const context = new OffscreenCanvas(width, height).getContext('2d');
    context.drawImage(bitmap, 0, 0);
    return withoutAlpha(width, height, context.getImageData(0, 0, width, height).data, name);
  } finally {
    bitmap.close();
  }
}
