/**
 * The rows of images that prompts contain. In token lists a row has a negative id, a hash of the image and of its place in it:
 * equal images have equal ids, so that cached prefixes are shared by what they show.
 */
import type { RowGrid } from '@winnow/models';
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

/** A row, and what it turns by in models with M-RoPE. */
interface ImageRow {
  readonly values: Float32Array;
  readonly offset: RowOffset;
}

const noOffset: RowOffset = [0, 0, 0];

/** The default limit of the rows in memory: 27 images of LLaVA 1.5 7B, of 9 MB each. */
export const maxImageBytes: number = 256 * 1024 * 1024;

/** The place of an image in the tokens of a prompt, before its rows are inserted, where no token stands for it. */
export const imagePlaceId: number = -(2 ** 31);

/** Whether an id stands for a row of an image. */
export function isImageId(id: number): boolean {
  return id < 0;
}

/**
 * Whether the next token has the next rotary position. In models with M-RoPE the rows of an image take only as many positions as
 * its longer side has rows; their ids say which of them move on, so that positions follow from the tokens alone.
 */
export function movesOn(id: number): boolean {
  return id >= 0 || (id & 1) === 1;
}

/** What a row turns by, in addition to the rotary position of its token: time, row and column. */
export type RowOffset = readonly [time: number, row: number, column: number];

/** The last rows of an image move on, so many that the text after it has the position after its greatest coordinate. */
function placesOf({ rows, columns }: RowGrid): { readonly offsets: readonly RowOffset[]; readonly numStill: number } {
  const numStill = rows * columns - Math.max(rows, columns);
  const offsets = Array.from({ length: rows * columns }, (_, index): RowOffset => {
    const moved = Math.max(0, index - numStill);
    return [-moved, Math.floor(index / columns) - moved, (index % columns) - moved];
  });
  return { offsets, numStill };
}

/** Rows of as many images as fit `maxImageBytes`, at least all rows of one prompt. */
export function imageRowsFor(dim: number, contextSize: number): ImageRows {
  return new ImageRows(dim, Math.max(maxImageBytes, 4 * dim * contextSize));
}

export class ImageRows {
  readonly dim: number;
  readonly #maxBytes: number;
  /** By hash, the latest used last. */
  readonly #tiles = new Map<string, TileRows>();
  readonly #places = new Map<number, ImageRow>();
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

  /**
   * Keeps the rows of a tile, and drops the least recently used ones.
   * @param grid in models with M-RoPE, whose ids say which rows move on
   * @returns their ids
   */
  add(hash: string, rows: Float32Array, grid?: RowGrid): Int32Array {
    const numRows = rows.length / this.dim;
    const places = grid && placesOf(grid);
    const ids = this.#freeIds(hash, numRows, places?.numStill);
    for (let row = 0; row < numRows; row++) {
      const values = rows.subarray(row * this.dim, (row + 1) * this.dim);
      this.#places.set(ids[row] as number, { values, offset: places?.offsets[row] ?? noOffset });
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
  rowOf(id: number): ImageRow {
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

  /**
   * Ids that no other row has: 31 bits of the hash and the row, with another salt if they are taken.
   * @param numStill how many of the first rows do not move on. Default: the last bit of all ids is one of the hash
   */
  #freeIds(hash: string, numRows: number, numStill?: number): Int32Array {
    const words = Array.from({ length: 8 }, (_, word) => Number.parseInt(hash.slice(8 * word, 8 * word + 8), 16));
    for (let salt = 0; ; salt++) {
      const ids = new Set<number>();
      for (let row = 0; row < numRows; row++) {
        const free = -1 - (mixed((words[row % 8] as number) ^ Math.imul(row + 1, 0x9e3779b1), salt) >>> 1);
        const id = numStill === undefined ? free : (free & ~1) | Number(row >= numStill);
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
