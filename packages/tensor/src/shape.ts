/** Shapes: row-major lists of dimensions, outermost first, with overflow-checked products. */
import { sizeOf, type DType } from './dtype.js';
import { ShapeError } from './errors.js';

/** Dimensions, outermost first. `[]` is a scalar. */
export type Shape = readonly number[];

/**
 * Product of all dimensions.
 * @throws {ShapeError} for a dimension that is not a non-negative integer, or a product above 2^53 - 1
 */
export function numElements(shape: Shape): number {
  let product = 1;
  for (const dim of shape) {
    if (!Number.isSafeInteger(dim) || dim < 0) {
      throw new ShapeError({
        op: 'shape',
        rule: 'dimension',
        expected: 'a non-negative integer',
        actual: formatShape(shape),
      });
    }
    product *= dim;
    if (!Number.isSafeInteger(product)) {
      throw new ShapeError({
        op: 'shape',
        rule: 'number of elements',
        expected: 'at most 2^53 - 1',
        actual: formatShape(shape),
      });
    }
  }
  return product;
}

/**
 * Bytes of a contiguous tensor. Blocks run along the last dimension, which must be a whole number of blocks.
 * @throws {ShapeError}
 */
export function tensorBytes(dtype: DType, shape: Shape): number {
  const rowLength = shape.length === 0 ? 1 : (shape[shape.length - 1] as number);
  const rowBytes = sizeOf(dtype, rowLength);
  const numRows = numElements(shape.slice(0, -1));
  const sizeBytes = numRows * rowBytes;
  if (!Number.isSafeInteger(sizeBytes)) {
    throw new ShapeError({
      op: 'shape',
      rule: 'bytes',
      expected: 'at most 2^53 - 1',
      actual: `${dtype} ${formatShape(shape)}`,
    });
  }
  return sizeBytes;
}

/** Row-major strides in elements: `[2, 3, 4]` gives `[12, 4, 1]`. */
export function contiguousStrides(shape: Shape): number[] {
  const strides = Array.from({ length: shape.length }, () => 1);
  let stride = 1;
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    strides[axis] = stride;
    stride *= shape[axis] as number;
  }
  return strides;
}

export function equalShapes(a: Shape, b: Shape): boolean {
  return a.length === b.length && a.every((dim, axis) => dim === b[axis]);
}

/** Formats a shape for messages: `[2, 3, 4]`. */
export function formatShape(shape: readonly (number | string)[]): string {
  return `[${shape.join(', ')}]`;
}

/** The smallest number of values that is a whole number of blocks of both sizes. */
export function leastCommonMultiple(a: number, b: number): number {
  let [x, y] = [a, b];
  while (y !== 0) [x, y] = [y, x % y];
  return (a / x) * b;
}
