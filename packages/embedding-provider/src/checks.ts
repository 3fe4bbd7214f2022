/** Validation shared by both stores. */
import { ArgumentError, ShapeError } from '@winnow/tensor';

/** @throws {ShapeError} @throws {ArgumentError} for non-finite values, for which no distance is defined */
export function checkVector(vector: Float32Array, dimensions: number): void {
  if (vector.length !== dimensions) {
    const actual = `${vector.length} (another model?)`;
    throw new ShapeError({ op: 'vector store', rule: 'dimensions', expected: String(dimensions), actual });
  }
  const broken = vector.findIndex((value) => !Number.isFinite(value));
  if (broken < 0) return;
  throw new ArgumentError({
    argument: `vector[${broken}]`,
    expected: 'a finite number',
    actual: String(vector[broken]),
  });
}

/** @throws {ArgumentError} */
export function checkCount(argument: string, value: number): void {
  if (Number.isSafeInteger(value) && value > 0) return;
  throw new ArgumentError({ argument, expected: 'a positive integer', actual: String(value) });
}
