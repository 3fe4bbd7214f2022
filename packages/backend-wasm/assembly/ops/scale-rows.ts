/** Work items: rows. */
import { scales, x, y } from '../operands/scale-rows.generated';
import { floatAt } from '../runtime/arrays';
import { nextItems } from '../runtime/threads';
import { scaleRow } from './pointwise';

export function scaleRows(): void {
  for (let row = nextItems(1); row < x.numRows; row = nextItems(1)) {
    scaleRow(x.rowAt(row), y.rowAt(row), floatAt(scales.address, row), x.dim);
  }
}
