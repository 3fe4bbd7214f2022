/** Reads images from files. */
import { maxFileBytes, readImageHeader } from '@winnow/vision';
import { readBytesOf } from '../terminal/read-text.js';

/**
 * A PNG, JPEG or WebP file, of which the header is checked.
 * @throws {IoError} when it cannot be read or the file is too large
 * @throws {FormatError} when it is no image
 * @throws {CapacityError} when the image is too large
 */
export async function readImage(path: string, signal?: AbortSignal): Promise<Uint8Array> {
  const bytes = await readBytesOf(path, signal, maxFileBytes);
  readImageHeader(bytes, { name: path });
  return bytes;
}

/** `2 images` */
export function countOfImages(count: number): string {
  return count === 1 ? '1 image' : `${count} images`;
}
