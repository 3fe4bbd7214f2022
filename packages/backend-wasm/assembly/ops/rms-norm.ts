/** Work items: rows; sums in f64. */
import { attributes, weight, x, y } from '../operands/rms-norm.generated';
import { nextItems } from '../runtime/threads';
import { scaleShift, sumOfSquares } from '../simd/normalize-row';

export function rmsNorm(): void {
  const length = x.dim;
  const numRows = x.numRows;
  const factors = weight.address;
  const eps = <f64>attributes.eps;
  const rowBytes = (<usize>length) << 2;
  for (let row = nextItems(1); row < numRows; row = nextItems(1)) {
    const from = x.address + <usize>row * rowBytes;
    const to = y.address + <usize>row * rowBytes;
    const squares = sumOfSquares(from, length, 0);
    scaleShift(from, to, factors, 0, 0, 1 / Math.sqrt(squares / <f64>length + eps), length);
  }
}
