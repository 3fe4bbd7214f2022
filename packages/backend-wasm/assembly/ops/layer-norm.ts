/** Work items: rows; sums in f64. */
import { attributes, bias, weight, x, y } from '../operands/layer-norm.generated';
import { nextItems } from '../runtime/threads';
import { scaleShift, sumOf, sumOfSquares } from '../simd/normalize-row';

export function layerNorm(): void {
  const length = x.dim;
  const numRows = x.numRows;
  const factors = weight.address;
  const offsets = bias.isPresent ? bias.address : 0;
  const eps = <f64>attributes.eps;
  const rowBytes = (<usize>length) << 2;
  for (let row = nextItems(1); row < numRows; row = nextItems(1)) {
    const from = x.address + <usize>row * rowBytes;
    const to = y.address + <usize>row * rowBytes;
    const mean = sumOf(from, length) / <f64>length;
    const squares = sumOfSquares(from, length, mean);
    scaleShift(from, to, factors, offsets, mean, 1 / Math.sqrt(squares / <f64>length + eps), length);
  }
}
