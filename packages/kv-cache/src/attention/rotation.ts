/** The `hadamard` op on rows of the host: for queries over rotated keys in your own kernels. */
import { BoundProgram, createReferenceBackend, type Backend } from '@winnow/ops';
import { checkOptions, type OptionNames, ShapeError } from '@winnow/tensor';

export interface RotationOptions {
  /** Values per row; rows are rotated in blocks of `hadamardSize(dim)`. */
  readonly dim: number;
  /** The backend. Default: the reference backend, which is slow. */
  readonly backend?: Backend;
}

const rotationNames: OptionNames<RotationOptions> = { dim: true, backend: true };

/** Rows that one run rotates. */
const chunkRows = 64;

/**
 * Rotates rows by an orthonormal Hadamard matrix, which is its own inverse and preserves dot products: `(R q) . (R k) =
 * q . k`. It spreads outlier channels over all channels of a head, so that a 4-bit block of keys loses less
 * (arXiv:2404.00456 §4).
 */
export class Rotation {
  readonly #dim: number;
  readonly #program: BoundProgram;

  private constructor(dim: number, program: BoundProgram) {
    this.#dim = dim;
    this.#program = program;
  }

  /** @throws {ShapeError} when `dim` is odd, which has no Hadamard matrix */
  static async create(options: RotationOptions): Promise<Rotation> {
    checkOptions(options, rotationNames);
    const { dim, backend = createReferenceBackend() } = options;
    const program = await BoundProgram.prepare({ backend }, (b) => {
      b.output('y', b.activation('hadamard', { x: b.external('x', 'kv', 'f32', [chunkRows, dim]) }));
    });
    return new Rotation(dim, program);
  }

  /** Rotates rows in place. One call at a time. */
  async apply(rows: Float32Array): Promise<void> {
    if (rows.length % this.#dim !== 0) {
      const expected = `rows of ${this.#dim} values`;
      throw new ShapeError({ op: 'rotation', rule: 'rows', expected, actual: `${rows.length} values` });
    }
    for (let begin = 0; begin < rows.length; begin += chunkRows * this.#dim) {
      const chunk = rows.subarray(begin, begin + chunkRows * this.#dim);
      await this.#program.write('x', chunk);
      await this.#program.run();
      await this.#program.read('y', chunk);
    }
  }

  close(): Promise<void> {
    return this.#program.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
