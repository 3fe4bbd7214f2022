/** The tensor of attention code: [sequence, heads, head dimension] float32 values, row-major. */
import { ShapeError } from './errors.js';
import { formatShape, numElements, type Shape } from './shape.js';
import { StridedView } from './strided-view.js';

/** JavaScript engines do not support typed arrays of 2^32 elements; this error is clearer than their RangeError. */
const maxLength = 2 ** 32 - 1;

/** Row (s, h) lies at `data[(s * numHeads + h) * headDim ...]`. */
export class Tensor3 {
  /** [seqLen, numHeads, headDim] */
  readonly data: Float32Array;
  readonly seqLen: number;
  readonly numHeads: number;
  readonly headDim: number;

  /**
   * Wraps `data` without copying.
   * @throws {ShapeError} when a dimension is not a non-negative integer or `data` has another length
   */
  constructor(data: Float32Array, seqLen: number, numHeads: number, headDim: number) {
    const shape = [seqLen, numHeads, headDim];
    const expected = numElements(shape);
    if (data.length !== expected) {
      throw new ShapeError({
        op: 'Tensor3',
        rule: `values of ${formatShape(shape)}`,
        expected: String(expected),
        actual: String(data.length),
      });
    }
    this.data = data;
    this.seqLen = seqLen;
    this.numHeads = numHeads;
    this.headDim = headDim;
  }

  /** A new tensor of zeros. @throws {ShapeError} for invalid dimensions, or more values than a `Float32Array` holds */
  static create(seqLen: number, numHeads: number, headDim: number): Tensor3 {
    const shape = [seqLen, numHeads, headDim];
    const length = numElements(shape);
    if (length > maxLength) {
      throw new ShapeError({
        op: 'Tensor3.create',
        rule: 'number of elements',
        expected: `at most ${maxLength}`,
        actual: formatShape(shape),
      });
    }
    return new Tensor3(new Float32Array(length), seqLen, numHeads, headDim);
  }

  /**
   * A new tensor with a copy of `values`.
   * @throws {ShapeError} when the number of values does not match the dimensions
   */
  static from(values: ArrayLike<number>, seqLen: number, numHeads: number, headDim: number): Tensor3 {
    return new Tensor3(Float32Array.from(values), seqLen, numHeads, headDim);
  }

  get shape(): Shape {
    return [this.seqLen, this.numHeads, this.headDim];
  }

  /**
   * The `headDim` values of one position and head, sharing memory.
   * @throws {ShapeError} for an index out of range
   */
  row(seqIndex: number, headIndex: number): Float32Array {
    const isInside =
      Number.isInteger(seqIndex) &&
      Number.isInteger(headIndex) &&
      seqIndex >= 0 &&
      seqIndex < this.seqLen &&
      headIndex >= 0 &&
      headIndex < this.numHeads;
    if (!isInside) {
      throw new ShapeError({
        op: 'Tensor3.row',
        rule: '[seqIndex, headIndex]',
        expected: `indices within ${formatShape([this.seqLen, this.numHeads])}`,
        actual: formatShape([seqIndex, headIndex]),
      });
    }
    const begin = (seqIndex * this.numHeads + headIndex) * this.headDim;
    return this.data.subarray(begin, begin + this.headDim);
  }

  /**
   * Positions [begin, end) of the sequence, sharing memory.
   * @throws {ShapeError} unless 0 <= begin <= end <= seqLen
   */
  slice(begin: number, end: number): Tensor3 {
    if (!Number.isInteger(begin) || !Number.isInteger(end) || begin < 0 || begin > end || end > this.seqLen) {
      throw new ShapeError({
        op: 'Tensor3.slice',
        rule: 'range of positions',
        expected: `0 <= begin <= end <= ${this.seqLen}`,
        actual: `begin ${begin}, end ${end}`,
      });
    }
    const rowLength = this.numHeads * this.headDim;
    const data = this.data.subarray(begin * rowLength, end * rowLength);
    return new Tensor3(data, end - begin, this.numHeads, this.headDim);
  }

  /** The whole tensor as a view, for permutations and slices along other axes; shares memory. */
  view(): StridedView {
    return new StridedView(this.data, this.shape);
  }
}
