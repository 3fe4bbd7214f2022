/** GEMMs of host matrices on a backend: one small program per size. */
import { BoundProgram, type Backend } from '@winnow/ops';
import { ReleasedError } from '@winnow/tensor';

/** T, I and O of a GEMM. */
export interface ProductDims {
  readonly numRows: number;
  readonly numInputs: number;
  readonly numOutputs: number;
}

/** Caches a program per size until it is closed. One GEMM at a time. */
export class MatrixProducts {
  readonly #backend: Backend;
  readonly #programs = new Map<string, BoundProgram>();
  #isClosed = false;

  constructor(backend: Backend) {
    this.#backend = backend;
  }

  /**
   * `out[t, o] = sum_i x[t, i] * w[o, i]`, as the op `matmul`, with f32 operands.
   * @param x `[T, I]`
   * @param w `[O, I]`
   * @param out `[T, O]`
   */
  async multiply(x: Float32Array, w: Float32Array, out: Float32Array, dims: ProductDims): Promise<void> {
    if (this.#isClosed) throw new ReleasedError('matrix products');
    const key = `${dims.numRows} ${dims.numInputs} ${dims.numOutputs}`;
    let program = this.#programs.get(key);
    if (program === undefined) this.#programs.set(key, (program = await this.#prepare(dims)));
    await program.write('x', x);
    await program.write('w', w);
    await program.run();
    await program.read('y', out);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    for (const program of this.#programs.values()) await program.close();
    this.#programs.clear();
  }

  #prepare({ numRows, numInputs, numOutputs }: ProductDims): Promise<BoundProgram> {
    return BoundProgram.prepare({ backend: this.#backend }, (b) => {
      // usage kv, since these matrices change and weights may be repacked at prepare
      const x = b.external('x', 'kv', 'f32', [numRows, numInputs]);
      const w = b.external('w', 'kv', 'f32', [numOutputs, numInputs]);
      b.output('y', b.activation('matmul', { x, weight: w }));
    });
  }
}

/** The transpose of a matrix `[numRows, numColumns]`. */
export function transpose(
  matrix: Float32Array,
  numRows: number,
  numColumns: number,
  out: Float32Array = new Float32Array(numRows * numColumns),
): Float32Array {
  const tile = 32; // both sides of the copy fit the L1 cache
  for (let rowBegin = 0; rowBegin < numRows; rowBegin += tile) {
    const rowEnd = Math.min(rowBegin + tile, numRows);
    for (let column = 0; column < numColumns; column++) {
      for (let row = rowBegin; row < rowEnd; row++) out[column * numRows + row] = matrix[row * numColumns + column];
    }
  }
  return out;
}
