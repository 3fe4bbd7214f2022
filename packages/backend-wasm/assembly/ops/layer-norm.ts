/** Work items: rows; sums in f64. */
import { attributes, bias, weight, x, y } from '../operands/layer-norm.generated';
import { nextItems } from '../runtime/threads';
import { scaleShift, sumOf, sumOfSquares } from '../simd/normalize-row';

export function layerNorm(): void {
  const length = x.dim;
  const offsets = bias.isPresent ? bias.address : 0;
  for (let row = nextItems(1); row < x.numRows; row = nextItems(1)) {
    const mean = sumOf(x.rowAt(row), length) / <f64>length;
    const variance = sumOfSquares(x.rowAt(row), length, mean) / <f64>length;
    const scale = 1 / Math.sqrt(variance + <f64>attributes.eps);
    scaleShift(x.rowAt(row), y.rowAt(row), weight.address, offsets, mean, scale, length);
  }
}
