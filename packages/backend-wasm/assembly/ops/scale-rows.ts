/** Work items: rows. */
import { scales, x, y } from '../operands/scale-rows.generated';
import { nextItems } from '../runtime/threads';
import { scaleRow } from './pointwise';

export function scaleRows(): void {
  const length = x.dim;
  const numRows = x.numRows;
  const rowBytes = (<usize>length) << 2;
  for (let row = nextItems(1); row < numRows; row = nextItems(1)) {
    const at = <usize>row * rowBytes;
    const factor = load<f32>(scales.address + ((<usize>row) << 2));
    scaleRow(x.address + at, y.address + at, factor, length);
  }
}
