/** Work items: rows; sums in f64. */
import { attributes, weight, x, y } from '../operands/rms-norm.generated';
import { nextItems } from '../runtime/threads';
import { scaleShift, sumOfSquares } from '../simd/normalize-row';

export function rmsNorm(): void {
  const length = x.dim;
  for (let row = nextItems(1); row < x.numRows; row = nextItems(1)) {
    const squares = sumOfSquares(x.rowAt(row), length, 0);
    const scale = 1 / Math.sqrt(squares / <f64>length + <f64>attributes.eps);
    scaleShift(x.rowAt(row), y.rowAt(row), weight.address, 0, 0, scale, length);
  }
}
