/** Writes the rows of images that the tokens of a step stand for. */
import { imageRowsName, imageRowsSlot } from '@winnow/models';
import type { Backend, BufferHandle, ScalarBlock } from '@winnow/ops';
import { isImageId, type ImageRows } from './image-rows.js';

/** What the steps of a model that takes images need. */
export interface StepImagesParts {
  readonly rows: ImageRows;
  /** The token whose row the program looks up for a row of an image. */
  readonly tokenId: number;
  readonly backend: Backend;
  readonly buffers: ReadonlyMap<string, BufferHandle>;
}

export class StepImages {
  readonly #parts: StepImagesParts;
  readonly #slot: Int32Array; // [T]
  readonly #values: Float32Array; // [T, dim]
  readonly #buffer: BufferHandle;

  constructor(parts: StepImagesParts, block: ScalarBlock, maxTokens: number) {
    this.#parts = parts;
    this.#slot = block.slot(imageRowsSlot);
    this.#values = new Float32Array(maxTokens * parts.rows.dim);
    this.#buffer = parts.buffers.get(imageRowsName(maxTokens)) as BufferHandle;
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
      this.#values.set(rows.rowOf(id), numRows * dim);
      tokens[token] = tokenId;
      this.#slot[token] = ++numRows;
    }
    if (numRows === 0) return;
    const bytes = new Uint8Array(this.#values.buffer, 0, 4 * numRows * dim);
    await backend.write(this.#buffer, 4 * dim, bytes); // after the row of zeros
  }
}
