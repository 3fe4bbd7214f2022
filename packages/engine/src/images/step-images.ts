/** Writes the rows of images that the tokens of a step stand for. */
import { imageAnglesName, imagePositionsSlot, imageRowsName, imageRowsSlot, rotaryRowsSlot } from '@winnow/models';
import type { Backend, BufferHandle, ScalarBlock } from '@winnow/ops';
import { isImageId, type ImageRows, type RowOffset } from './image-rows.js';

/** What the steps of a model that takes images need. */
export interface StepImagesParts {
  readonly rows: ImageRows;
  /** The token whose row the program looks up for a row of an image. */
  readonly tokenId: number;
  readonly backend: Backend;
  readonly buffers: ReadonlyMap<string, BufferHandle>;
  /** For models with M-RoPE. */
  readonly rotation: ImageRotation | undefined;
}

/** M-RoPE: the frequency of each pair, and the coordinate by which it turns. */
export interface ImageRotation {
  readonly frequencies: Float32Array;
  readonly coordinates: readonly number[];
}

export class StepImages {
  readonly #parts: StepImagesParts;
  readonly #slot: Int32Array; // [T]
  readonly #values: Float32Array; // [T, dim]
  readonly #buffer: BufferHandle;
  readonly #angles: StepAngles | undefined;

  constructor(parts: StepImagesParts, block: ScalarBlock, maxTokens: number) {
    this.#parts = parts;
    this.#slot = block.slot(imageRowsSlot);
    this.#values = new Float32Array(maxTokens * parts.rows.dim);
    this.#buffer = parts.buffers.get(imageRowsName(maxTokens)) as BufferHandle;
    this.#angles = parts.rotation && new StepAngles(parts, parts.rotation, block, maxTokens);
  }

  /**
   * Replaces ids of images among the first `numTokens` by the image token, and writes their rows.
   * @throws {CapacityError} for rows that were forgotten
   */
  async fill(tokens: Int32Array, numTokens: number): Promise<void> {
    const { rows, tokenId, backend } = this.#parts;
    const { dim } = rows;
    let numRows = 0;
    for (let token = 0; token < numTokens; token++) {
      const id = tokens[token] as number;
      this.#slot[token] = 0;
      if (!isImageId(id)) continue;
      const { values, offset } = rows.rowOf(id);
      this.#values.set(values, numRows * dim);
      tokens[token] = tokenId;
      this.#slot[token] = ++numRows;
      this.#angles?.set(token, numRows, offset);
    }
    await this.#angles?.write(numRows, this.#slot.subarray(0, numTokens));
    if (numRows === 0) return;
    const bytes = new Uint8Array(this.#values.buffer, 0, 4 * numRows * dim);
    await backend.write(this.#buffer, 4 * dim, bytes); // after the row of zeros
  }
}

/** The rows of the table that RoPE reads: the frequencies of text, and the angles of each row of an image. */
class StepAngles {
  readonly #rotation: ImageRotation;
  readonly #backend: Backend;
  readonly #positions: Int32Array; // [T]
  readonly #rotaryRows: Int32Array; // [T]
  readonly #table: Float32Array; // [1 + T, numPairs]
  readonly #buffer: BufferHandle;

  constructor({ backend, buffers }: StepImagesParts, rotation: ImageRotation, block: ScalarBlock, maxTokens: number) {
    const { frequencies } = rotation;
    this.#rotation = rotation;
    this.#backend = backend;
    this.#positions = block.slot(imagePositionsSlot);
    this.#rotaryRows = block.slot(rotaryRowsSlot);
    this.#table = new Float32Array((1 + maxTokens) * frequencies.length);
    this.#table.set(frequencies);
    this.#buffer = buffers.get(imageAnglesName(maxTokens)) as BufferHandle;
  }

  /** The angles of a row: its token gets position 1, and keeps its rotary position here until then. */
  set(token: number, row: number, offset: RowOffset): void {
    const { frequencies, coordinates } = this.#rotation;
    const position = this.#positions[token] as number;
    const begin = row * frequencies.length;
    for (let pair = 0; pair < frequencies.length; pair++) {
      const coordinate = position + (offset[coordinates[pair] as number] as number);
      // whole turns are left out, so that f32 holds angles as exactly as in the kernel
      this.#table[begin + pair] = (coordinate * (frequencies[pair] as number)) % (2 * Math.PI);
    }
    this.#positions[token] = 1;
  }

  /** @param rows the row of each token, `[T]` */
  async write(numRows: number, rows: Int32Array): Promise<void> {
    this.#rotaryRows.set(rows);
    const numBytes = 4 * (1 + numRows) * this.#rotation.frequencies.length;
    await this.#backend.write(this.#buffer, 0, new Uint8Array(this.#table.buffer, 0, numBytes));
  }
}
