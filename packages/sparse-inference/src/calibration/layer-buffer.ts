import type { TrainingBatch } from '../training/train-low-rank.js';

/** Hidden states and labels of one layer, of a bounded number of tokens. A label takes one bit. */
export class LayerBuffer {
  readonly #hiddenDim: number;
  readonly #ffnDim: number;
  readonly #bytesPerRow: number;
  #x: Float32Array;
  #bits: Uint8Array;
  #numRows = 0;

  /** @param capacity tokens to begin with; it grows when a single sample is longer */
  constructor(hiddenDim: number, ffnDim: number, capacity: number) {
    this.#hiddenDim = hiddenDim;
    this.#ffnDim = ffnDim;
    this.#bytesPerRow = Math.ceil(ffnDim / 8);
    this.#x = new Float32Array(capacity * hiddenDim);
    this.#bits = new Uint8Array(capacity * this.#bytesPerRow);
  }

  get numRows(): number {
    return this.#numRows;
  }

  /** `[numRows, E]`, valid until the next change. */
  get x(): Float32Array {
    return this.#x.subarray(0, this.#numRows * this.#hiddenDim);
  }

  /**
   * @param x `[n, E]`
   * @param labels `[n, F]`, 0 or 1
   */
  append(x: Float32Array, labels: Uint8Array): void {
    const numNew = x.length / this.#hiddenDim;
    const end = this.#numRows + numNew;
    if (end * this.#hiddenDim > this.#x.length) this.#grow(end);
    this.#x.set(x, this.#numRows * this.#hiddenDim);
    for (let row = 0; row < numNew; row++) {
      const at = (this.#numRows + row) * this.#bytesPerRow;
      for (let id = 0; id < this.#ffnDim; id++)
        this.#bits[at + (id >> 3)] |= labels[row * this.#ffnDim + id] << (id & 7);
    }
    this.#numRows = end;
  }

  /** Copies of chosen rows. */
  batch(rows: Int32Array): TrainingBatch {
    const [E, F] = [this.#hiddenDim, this.#ffnDim];
    const x = new Float32Array(rows.length * E);
    const labels = new Uint8Array(rows.length * F);
    for (let i = 0; i < rows.length; i++) {
      x.set(this.#x.subarray(rows[i] * E, (rows[i] + 1) * E), i * E);
      const at = rows[i] * this.#bytesPerRow;
      for (let id = 0; id < F; id++) labels[i * F + id] = (this.#bits[at + (id >> 3)] >> (id & 7)) & 1;
    }
    return { numRows: rows.length, x, labels };
  }

  clear(): void {
    this.#numRows = 0;
    this.#bits.fill(0);
  }

  #grow(numRows: number): void {
    const x = new Float32Array(numRows * this.#hiddenDim);
    x.set(this.#x);
    this.#x = x;
    const bits = new Uint8Array(numRows * this.#bytesPerRow);
    bits.set(this.#bits);
    this.#bits = bits;
  }
}
