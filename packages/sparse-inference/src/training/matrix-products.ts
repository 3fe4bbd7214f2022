/** Products of plain matrices on a backend: one small program per size, whose operands the host writes before each run. */
import { createScalarBlock, ProgramBuilder, type Backend, type BufferHandle, type Executable } from '@winnow/ops';
import { ReleasedError } from '@winnow/tensor';
import { bytesOf } from '../plain/bytes.js';

/** Products on a backend, as long as it is not disposed. One at a time. */
export interface MatrixProducts {
  /**
   * `out[t, o] = sum_i x[t, i] * w[o, i]`, as the op `matmul`, with f32 operands.
   * @param x `[T, I]`
   * @param w `[O, I]`
   * @param out `[T, O]`
   */
  multiply(x: Float32Array, w: Float32Array, out: Float32Array, dims: ProductDims): Promise<void>;
  dispose(): Promise<void>;
}

/** T, I and O of a product. */
export interface ProductDims {
  readonly numRows: number;
  readonly numInputs: number;
  readonly numOutputs: number;
}

interface Product {
  readonly executable: Executable;
  readonly scalars: Int32Array;
  readonly x: BufferHandle;
  readonly w: BufferHandle;
}

/** Keeps the programs and operands of every size that it was asked for until it is disposed. */
export function createMatrixProducts(backend: Backend): MatrixProducts {
  const products = new Map<string, Product>();
  let isDisposed = false;

  const prepare = async ({ numRows, numInputs, numOutputs }: ProductDims): Promise<Product> => {
    const b = new ProgramBuilder({});
    // of usage kv: weights may be arranged anew when a program is prepared, and these change
    const x = b.external('x', 'kv', 'f32', [numRows, numInputs]);
    const w = b.external('w', 'kv', 'f32', [numOutputs, numInputs]);
    b.output('y', b.activation('matmul', { x, weight: w }));
    const program = b.build();
    const allocate = (label: string, numElements: number): BufferHandle =>
      backend.allocate({ sizeBytes: numElements * 4, usage: 'kv', label: `calibration ${label}` });
    const handles = { x: allocate('x', numRows * numInputs), w: allocate('w', numOutputs * numInputs) };
    const executable = await backend.prepare(program, { buffers: new Map(Object.entries(handles)) });
    return { ...handles, executable, scalars: createScalarBlock(program.scalars, program.symbols).words };
  };

  return {
    async multiply(x, w, out, dims) {
      if (isDisposed) throw new ReleasedError('matrix products');
      const key = `${dims.numRows} ${dims.numInputs} ${dims.numOutputs}`;
      let product = products.get(key);
      if (product === undefined) products.set(key, (product = await prepare(dims)));
      await backend.write(product.x, 0, bytesOf(x));
      await backend.write(product.w, 0, bytesOf(w));
      await product.executable.run(product.scalars);
      await product.executable.read('y', out);
    },
    async dispose() {
      isDisposed = true;
      for (const { executable, x, w } of products.values()) {
        await executable.dispose();
        backend.free(x);
        backend.free(w);
      }
      products.clear();
    },
  };
}

/** The transpose of a matrix `[numRows, numColumns]`. */
export function transpose(
  matrix: Float32Array,
  numRows: number,
  numColumns: number,
  out: Float32Array = new Float32Array(numRows * numColumns),
): Float32Array {
  const tile = 32; // both sides of the copy stay in the first cache
  for (let rowBegin = 0; rowBegin < numRows; rowBegin += tile) {
    const rowEnd = Math.min(rowBegin + tile, numRows);
    for (let column = 0; column < numColumns; column++) {
      for (let row = rowBegin; row < rowEnd; row++) out[column * numRows + row] = matrix[row * numColumns + column];
    }
  }
  return out;
}
