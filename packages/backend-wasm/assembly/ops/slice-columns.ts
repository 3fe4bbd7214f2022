/** Columns beyond the row are 0. Work items: rows. */
import { attributes, x, y } from '../operands/slice-columns.generated';
import { nextItems } from '../runtime/threads';

export function sliceColumns(): void {
  const begin = (<usize>attributes.begin) << 2;
  const sizeBytes = (<usize>y.length) << 2;
  const rowBytes = (<usize>x.numInputs) << 2;
  const copied = min<usize>(sizeBytes, rowBytes - begin);
  const numRows = x.numRows;
  for (let row = nextItems(1); row < numRows; row = nextItems(1)) {
    const to = y.address + <usize>row * sizeBytes;
    memory.copy(to, x.address + <usize>row * rowBytes + begin, copied);
    memory.fill(to + copied, 0, sizeBytes - copied);
  }
}
