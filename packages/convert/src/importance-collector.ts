/**
 * Collects importance matrices: a wrapper around a backend that reads the inputs of all matrices while programs run, and a writer
 * for the sums of their squares, in the format of `llama-imatrix`.
 */
import type { ByteSink } from '@winnow/bytes';
import { writeGguf, type GgufTensorInput } from '@winnow/gguf';
import {
  shapeInStep,
  type Backend,
  type Executable,
  type OpRecord,
  type PrepareOptions,
  type Program,
  type RunOptions,
  type Segment,
  type TensorRef,
} from '@winnow/ops';
import { ArgumentError } from '@winnow/tensor';

/** Sums over the tokens that were multiplied by a matrix, or by each expert of a stack. */
interface Sums {
  readonly numColumns: number;
  readonly squares: Float64Array; // [numMatrices, numColumns]
  readonly counts: Float64Array; // [numMatrices]
}

export class ImportanceCollector {
  readonly #sums = new Map<string, Sums>();

  /** Names of the matrices whose inputs were read. */
  get names(): readonly string[] {
    return [...this.#sums.keys()];
  }

  /**
   * A backend that runs programs on `backend` and reads the inputs of their matrices, at the cost of a boundary per matrix. Disposing
   * of it disposes of `backend`.
   */
  observe(backend: Backend): Backend {
    const { name, notices, isBatchInvariant, limits, lost } = backend;
    return {
      ...{ name, limits, lost },
      ...(notices === undefined ? {} : { notices }),
      ...(isBatchInvariant === undefined ? {} : { isBatchInvariant }),
      supports: (...call) => backend.supports(...call),
      breakEvenRatio: (...call) => backend.breakEvenRatio(...call),
      allocate: (...call) => backend.allocate(...call),
      view: (...call) => backend.view(...call),
      write: (...call) => backend.write(...call),
      read: (...call) => backend.read(...call),
      copy: (...call) => backend.copy(...call),
      free: (...call) => backend.free(...call),
      prepare: (program, options) => this.#prepare(backend, program, options),
      dispose: () => backend.dispose(),
    };
  }

  /**
   * Writes `general.type` imatrix with `<name>.in_sum2` and `<name>.counts` of each matrix.
   * @param dataset name of the text
   * @param chunkTokens tokens of a sample
   * @throws {ArgumentError} when no matrix was read
   * @throws {IoError} when writing fails
   */
  async write(sink: ByteSink, dataset: string, numChunks: number, chunkTokens: number): Promise<void> {
    if (this.#sums.size === 0) {
      throw new ArgumentError({ argument: 'importance', expected: 'a model that has run', actual: 'no inputs' });
    }
    const tensor = (name: string, values: Float64Array, numColumns: number): GgufTensorInput => ({
      ...{ name, dtype: 'f32', shape: [values.length / numColumns, numColumns] },
      data: new Uint8Array(Float32Array.from(values).buffer),
    });
    const tensors = [...this.#sums]
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .flatMap(([name, { squares, counts, numColumns }]) => [
        tensor(`${name}.in_sum2`, squares, numColumns),
        tensor(`${name}.counts`, counts, 1),
      ]);
    await writeGguf(sink, {
      metadata: [
        ['general.type', 'imatrix'],
        ['imatrix.datasets', { type: 'array', elementType: 'string', value: [dataset] }],
        ['imatrix.chunk_count', { type: 'uint32', value: numChunks }],
        ['imatrix.chunk_size', { type: 'uint32', value: chunkTokens }],
      ],
      tensors,
    });
  }

  async #prepare(backend: Backend, program: Program, options: PrepareOptions): Promise<Executable> {
    const products = productsOf(program);
    const executable = await backend.prepare(withBoundaries(program, products), options);
    const run = (scalars: Int32Array, given: RunOptions = {}): Promise<void> =>
      executable.run(scalars, {
        ...given,
        onBoundary: async (boundary) => {
          const product = products.get(boundary);
          if (product === undefined) await given.onBoundary?.(boundary);
          else await this.#read(executable, product, ({ shape }) => shapeInStep(program, shape, scalars));
        },
      });
    const { fallbacks } = executable;
    return {
      ...{ program, fallbacks, run },
      read: (...call) => executable.read(...call),
      profile: () => executable.profile(),
      dispose: () => executable.dispose(),
    };
  }

  async #read(executable: Executable, product: Product, sizeOf: (tensor: TensorRef) => number[]): Promise<void> {
    const { name, x, ids, numMatrices } = product;
    const shape = sizeOf(x);
    const numColumns = shape.at(-1) as number;
    const numRows = shape.slice(0, -1).reduce((rows, dim) => rows * dim, 1);
    if (numRows === 0) return;
    const values = new Float32Array(numRows * numColumns);
    await executable.read(outputName(product, 'x'), values);
    const sums = this.#sumsOf(name, numMatrices, numColumns);
    if (ids === undefined) {
      for (let row = 0; row < numRows; row++) addRow(sums, 0, values, row);
      return;
    }
    const [numTokens, numChosen] = sizeOf(ids) as [number, number];
    const chosen = new Int32Array(numTokens * numChosen);
    await executable.read(outputName(product, 'ids'), chosen);
    const isShared = numRows === numTokens;
    for (const [pair, expert] of chosen.entries()) {
      addRow(sums, expert, values, isShared ? Math.floor(pair / numChosen) : pair);
    }
  }

  #sumsOf(name: string, numMatrices: number, numColumns: number): Sums {
    let sums = this.#sums.get(name);
    if (sums === undefined) {
      sums = {
        numColumns,
        squares: new Float64Array(numMatrices * numColumns),
        counts: new Float64Array(numMatrices),
      };
      this.#sums.set(name, sums);
    }
    return sums;
  }
}

function addRow({ squares, counts, numColumns }: Sums, matrix: number, values: Float32Array, row: number): void {
  counts[matrix] = (counts[matrix] as number) + 1;
  const [from, to] = [row * numColumns, matrix * numColumns];
  for (let i = 0; i < numColumns; i++) {
    squares[to + i] = (squares[to + i] as number) + (values[from + i] as number) ** 2;
  }
}

/** A product with a weight matrix or with a stack of them. */
interface Product {
  /** Index of the record. */
  readonly index: number;
  readonly name: string;
  readonly x: TensorRef;
  /** The matrices of the stack that each token uses, `[T, K]`. */
  readonly ids: TensorRef | undefined;
  readonly numMatrices: number;
}

const boundaryName = (index: number): string => `importance of record ${index}`;
const outputName = ({ index }: Product, input: 'x' | 'ids'): string => `${boundaryName(index)}: ${input}`;

/** The products of a program by the boundary before them. */
function productsOf(program: Program): Map<string, Product> {
  const products = program.records.map((record, index) => productOf(program, record, index));
  return new Map(
    products.flatMap((product) => (product === undefined ? [] : [[boundaryName(product.index), product]])),
  );
}

function productOf(program: Program, { op, inputs }: OpRecord, index: number): Product | undefined {
  const { x, weight, ids } = inputs;
  if ((op !== 'matmul' && op !== 'expert-matmul') || x === undefined || weight === undefined) return undefined;
  const buffer = program.buffers[weight.buffer];
  if (buffer?.usage !== 'weights' || !buffer.name.endsWith('.weight')) return undefined;
  const numMatrices = op === 'expert-matmul' ? (weight.shape[0] as number) : 1;
  return { index, name: buffer.name, x, ids: op === 'expert-matmul' ? ids : undefined, numMatrices };
}

/** The program with a boundary before each product, at which its inputs are outputs. */
function withBoundaries(program: Program, products: ReadonlyMap<string, Product>): Program {
  const outputs = new Map(program.outputs);
  for (const product of products.values()) {
    outputs.set(outputName(product, 'x'), product.x);
    if (product.ids !== undefined) outputs.set(outputName(product, 'ids'), product.ids);
  }
  const segments = program.segments.flatMap(({ begin, end, boundary }): Segment[] => {
    const cuts = [...products.values()].filter(({ index }) => index >= begin && index < end);
    const starts = [begin, ...cuts.map(({ index }) => index)];
    return [...cuts.map(({ index }) => boundaryName(index)), boundary].map((name, part) => ({
      ...{ begin: starts[part] as number, end: starts[part + 1] ?? end, boundary: name },
    }));
  });
  return { ...program, outputs, segments };
}
