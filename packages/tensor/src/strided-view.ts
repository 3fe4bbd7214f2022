/** A view of a typed array with its own shape and strides: slices and permutations without copying. */
import { ShapeError } from './errors.js';
import { contiguousStrides, formatShape, numElements, type Shape } from './shape.js';

/** Storage of a view. */
export type NumberArray =
  | Float32Array
  | Float64Array
  | Int8Array
  | Uint8Array
  | Int16Array
  | Uint16Array
  | Int32Array
  | Uint32Array;

/** Strides and offset of a view, in elements. */
export interface StridedViewOptions {
  /** Distance between neighbors along each axis; may be 0 or negative. Default: row-major. */
  readonly strides?: readonly number[];
  /** Index in `data` of the element at [0, 0, ...]. Default 0. */
  readonly offset?: number;
}

/**
 * Element [i0, i1, ...] lies at `data[offset + i0 * strides[0] + i1 * strides[1] + ...]`. Views share `data`; the
 * constructor checks that every element lies inside it. For set-up and tests; hot loops use the strides.
 */
export class StridedView<T extends NumberArray = Float32Array> {
  readonly data: T;
  readonly shape: Shape;
  readonly strides: readonly number[];
  readonly offset: number;
  /** Number of elements: the product of the dimensions. */
  readonly numElements: number;

  /** @throws {ShapeError} when strides do not match the shape, or an element lies outside of `data` */
  constructor(data: T, shape: Shape, options: StridedViewOptions = {}) {
    this.data = data;
    this.shape = [...shape];
    this.numElements = numElements(shape);
    this.strides = options.strides === undefined ? contiguousStrides(shape) : [...options.strides];
    this.offset = options.offset ?? 0;
    if (this.strides.length !== shape.length || !this.strides.every(Number.isSafeInteger)) {
      throw new ShapeError({
        op: 'StridedView',
        rule: 'strides',
        expected: `${shape.length} integers`,
        actual: formatShape(this.strides),
      });
    }
    this.#checkReach();
  }

  #checkReach(): void {
    let first = this.offset;
    let last = this.offset;
    for (let axis = 0; axis < this.shape.length; axis++) {
      const reach = (this.shape[axis] - 1) * this.strides[axis];
      if (reach < 0) first += reach;
      else last += reach;
    }
    const isInside = this.numElements === 0 || (first >= 0 && last < this.data.length);
    if (!Number.isSafeInteger(this.offset) || !isInside) {
      throw new ShapeError({
        op: 'StridedView',
        rule: 'reach of the elements',
        expected: `indices within [0, ${this.data.length})`,
        actual: `${first} to ${last} (shape ${formatShape(this.shape)}, strides ${formatShape(this.strides)})`,
      });
    }
  }

  /** Whether the elements are row-major and contiguous, as `values()` requires. Axes of length 1 do not matter. */
  get isContiguous(): boolean {
    if (this.numElements === 0) return true;
    let expected = 1;
    for (let axis = this.shape.length - 1; axis >= 0; axis--) {
      if (this.shape[axis] !== 1 && this.strides[axis] !== expected) return false;
      expected *= this.shape[axis];
    }
    return true;
  }

  /**
   * Index in `data` of one element, given one index per axis.
   * @throws {ShapeError} for a wrong number of indices, or one out of range
   */
  index(...indices: readonly number[]): number {
    let position = this.offset;
    let isInside = indices.length === this.shape.length;
    for (let axis = 0; axis < this.shape.length && isInside; axis++) {
      isInside = Number.isInteger(indices[axis]) && indices[axis] >= 0 && indices[axis] < this.shape[axis];
      position += indices[axis] * this.strides[axis];
    }
    if (!isInside) {
      throw new ShapeError({
        op: 'StridedView',
        rule: 'index',
        expected: `one within ${formatShape(this.shape)}`,
        actual: formatShape(indices),
      });
    }
    return position;
  }

  /** The element at these indices. @throws {ShapeError} as `index` */
  at(...indices: readonly number[]): number {
    return this.data[this.index(...indices)];
  }

  /**
   * Slices one axis: elements begin, begin + step, ... below end.
   * @throws {ShapeError} unless 0 <= begin <= end <= dimension and step >= 1
   */
  slice(axis: number, begin: number, end: number, step = 1): StridedView<T> {
    this.#checkAxis(axis);
    const dim = this.shape[axis];
    const isRange = [begin, end, step].every(Number.isSafeInteger) && begin >= 0 && begin <= end && end <= dim;
    if (!isRange || step < 1) {
      throw new ShapeError({
        op: 'StridedView.slice',
        rule: `range of axis ${axis}`,
        expected: `0 <= begin <= end <= ${dim} and step >= 1`,
        actual: `begin ${begin}, end ${end}, step ${step}`,
      });
    }
    return new StridedView(this.data, replaceAt(this.shape, axis, Math.ceil((end - begin) / step)), {
      strides: replaceAt(this.strides, axis, this.strides[axis] * step),
      offset: this.offset + begin * this.strides[axis],
    });
  }

  /**
   * Selects one index of an axis, which is removed from the shape.
   * @throws {ShapeError} for an axis or an index out of range
   */
  select(axis: number, index: number): StridedView<T> {
    const one = this.slice(axis, index, index + 1);
    return new StridedView(this.data, removeAt(this.shape, axis), {
      strides: removeAt(this.strides, axis),
      offset: one.offset,
    });
  }

  /**
   * Reorders the axes: axis i of the result is axis `axes[i]` of this view.
   * @throws {ShapeError} unless `axes` names every axis once
   */
  permute(axes: readonly number[]): StridedView<T> {
    const isPermutation = axes.length === this.shape.length && this.shape.every((_, axis) => axes.includes(axis));
    if (!isPermutation) {
      throw new ShapeError({
        op: 'StridedView.permute',
        rule: 'axes',
        expected: `a permutation of ${formatShape([...this.shape.keys()])}`,
        actual: formatShape(axes),
      });
    }
    return new StridedView(
      this.data,
      axes.map((axis) => this.shape[axis]),
      { strides: axes.map((axis) => this.strides[axis]), offset: this.offset },
    );
  }

  /** Swaps two axes. @throws {ShapeError} for an axis out of range */
  transpose(first: number, second: number): StridedView<T> {
    this.#checkAxis(first);
    this.#checkAxis(second);
    const axes = [...this.shape.keys()];
    axes[first] = second;
    axes[second] = first;
    return this.permute(axes);
  }

  /**
   * The same elements in row-major order under another shape.
   * @throws {ShapeError} when this view is not contiguous or the number of elements differs
   */
  reshape(shape: Shape): StridedView<T> {
    if (!this.isContiguous || numElements(shape) !== this.numElements) {
      throw new ShapeError({
        op: 'StridedView.reshape',
        rule: 'shape',
        expected: `a contiguous view of ${this.numElements} elements`,
        actual: `${formatShape(shape)} of ${this.isContiguous ? 'a contiguous' : 'a strided'} view`,
      });
    }
    return new StridedView(this.data, shape, { offset: this.offset });
  }

  /** The elements of a contiguous view, sharing its memory. @throws {ShapeError} when it is not contiguous */
  values(): T {
    if (!this.isContiguous) {
      throw new ShapeError({
        op: 'StridedView.values',
        rule: 'strides',
        expected: formatShape(contiguousStrides(this.shape)),
        actual: formatShape(this.strides),
      });
    }
    const begin = this.numElements === 0 ? 0 : this.offset;
    return this.data.subarray(begin, begin + this.numElements) as T;
  }

  /**
   * Writes all elements in row-major order to `out[0 ... numElements]`, which must not overlap `data`.
   * @throws {ShapeError} when `out` is too short
   */
  copyTo(out: NumberArray): void {
    if (out.length < this.numElements) {
      throw new ShapeError({
        op: 'StridedView.copyTo',
        rule: 'length of out',
        expected: `at least ${this.numElements}`,
        actual: String(out.length),
      });
    }
    const lastAxis = this.shape.length - 1;
    const rowLength = lastAxis < 0 ? 1 : this.shape[lastAxis];
    const rowStride = lastAxis < 0 ? 0 : this.strides[lastAxis];
    const indices = Array.from({ length: Math.max(0, lastAxis) }, () => 0);
    let from = this.offset;
    for (let to = 0; to < this.numElements; to += rowLength) {
      for (let i = 0; i < rowLength; i++) out[to + i] = this.data[from + i * rowStride];
      // Advance the outer indices like an odometer.
      for (let axis = lastAxis - 1; axis >= 0; axis--) {
        from += this.strides[axis];
        if (++indices[axis] < this.shape[axis]) break;
        from -= indices[axis] * this.strides[axis];
        indices[axis] = 0;
      }
    }
  }

  #checkAxis(axis: number): void {
    if (!Number.isInteger(axis) || axis < 0 || axis >= this.shape.length) {
      throw new ShapeError({
        op: 'StridedView',
        rule: 'axis',
        expected: `an integer within [0, ${this.shape.length})`,
        actual: String(axis),
      });
    }
  }
}

function replaceAt(list: readonly number[], at: number, value: number): number[] {
  return list.map((old, index) => (index === at ? value : old));
}

function removeAt(list: readonly number[], at: number): number[] {
  return list.filter((_, index) => index !== at);
}
