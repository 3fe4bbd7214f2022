/**
 * The rows of images that prompts contain. In token lists a row has a negative id, a hash of the image and of its place in it:
 * equal images have equal ids, so that cached prefixes are shared by what they show.
 */
import { ArgumentError, CapacityError } from '@winnow/tensor';
import type { Normalization, RgbImage } from '@winnow/vision';

/** Of Web Crypto. */
interface Subtle {
  digest(algorithm: string, data: Uint8Array): Promise<ArrayBuffer>;
}

/** The rows of one tile: `[numRows, dim]`. */
interface TileRows {
  readonly ids: Int32Array;
  readonly rows: Float32Array;
}

/** The default limit of the rows in memory: 27 images of LLaVA 1.5 7B, of 9 MB each. */
export const maxImageBytes: number = 256 * 1024 * 1024;

/** The place of an image in the tokens of a prompt, before its rows are inserted, where no token stands for it. */
export const imagePlaceId: number = -(2 ** 31);

/** Whether an id stands for a row of an image. */
export function isImageId(id: number): boolean {
  return id < 0;
}

export class ImageRows {
  readonly dim: number;
  readonly #maxBytes: number;
  /** By hash, the latest used last. */
  readonly #tiles = new Map<string, TileRows>();
  readonly #places = new Map<number, Float32Array>();
  #sizeBytes = 0;

  constructor(dim: number, maxBytes: number = maxImageBytes) {
    this.dim = dim;
    this.#maxBytes = maxBytes;
  }

  /** The ids of a tile that is known. */
  find(hash: string): Int32Array | undefined {
    const known = this.#tiles.get(hash);
    if (known === undefined) return undefined;
    this.#tiles.delete(hash);
    this.#tiles.set(hash, known);
    return known.ids;
  }

  /** Keeps the rows of a tile, and drops the least recently used ones. @returns their ids */
  add(hash: string, rows: Float32Array): Int32Array {
    const numRows = rows.length / this.dim;
    const ids = this.#freeIds(hash, numRows);
    for (let row = 0; row < numRows; row++) {
      this.#places.set(ids[row] as number, rows.subarray(row * this.dim, (row + 1) * this.dim));
    }
    this.#tiles.set(hash, { ids, rows });
    this.#sizeBytes += rows.byteLength;
    for (const [oldest, tile] of this.#tiles) {
      if (this.#sizeBytes <= this.#maxBytes || oldest === hash) break;
      this.#tiles.delete(oldest);
      this.#sizeBytes -= tile.rows.byteLength;
      for (const id of tile.ids) this.#places.delete(id);
    }
    return ids;
  }

  has(id: number): boolean {
    return this.#places.has(id);
  }

  /** The row of an id. @throws {CapacityError} when it was forgotten, or comes from a file of another program */
  rowOf(id: number): Float32Array {
    const row = this.#places.get(id);
    if (row !== undefined) return row;
    throw new CapacityError({
      ...{
        resource: 'rows of images',
        needed: this.#sizeBytes + 4 * this.dim,
        available: this.#maxBytes,
        unit: 'bytes',
      },
      hint: 'an image of the session is no longer in memory; pass the conversation with its images again',
    });
  }

  /** Ids that no other row has: 31 bits of the hash and the row, with another salt if they are taken. */
  #freeIds(hash: string, numRows: number): Int32Array {
    const words = Array.from({ length: 8 }, (_, word) => Number.parseInt(hash.slice(8 * word, 8 * word + 8), 16));
    for (let salt = 0; ; salt++) {
      const ids = new Set<number>();
      for (let row = 0; row < numRows; row++) {
        const id = -1 - (mixed((words[row % 8] as number) ^ Math.imul(row + 1, 0x9e3779b1), salt) >>> 1);
        if (this.#places.has(id) || id === imagePlaceId) break;
        ids.add(id);
      }
      if (ids.size === numRows) return Int32Array.from(ids);
    }
  }
}

/** The finalizer of MurmurHash3, which changes half of the bits for each bit of its input. */
function mixed(value: number, salt: number): number {
  let x = value ^ Math.imul(salt, 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return (x ^ (x >>> 16)) >>> 0;
}

/**
 * SHA-256 of the pixels of a tile and of their normalization, in hexadecimal digits: files with pages of prompts may outlive the settings.
 * @throws {ArgumentError} on a host without Web Crypto
 */
export async function hashOf({ width, height, data }: RgbImage, normalization: Normalization): Promise<string> {
  const { subtle } = (globalThis as { readonly crypto?: { readonly subtle?: Subtle } }).crypto ?? {};
  if (subtle === undefined) {
    throw new ArgumentError({ argument: 'images', expected: 'a host with Web Crypto', actual: 'one without' });
  }
  const { rescale, mean, std } = normalization;
  const numbers = Float64Array.of(width, height, rescale, ...mean, ...std);
  const bytes = new Uint8Array(numbers.byteLength + data.length);
  bytes.set(new Uint8Array(numbers.buffer));
  bytes.set(data, numbers.byteLength);
  const digest = new Uint8Array(await subtle.digest('SHA-256', bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
