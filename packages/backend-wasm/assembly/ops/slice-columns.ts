/** Columns past the end of a row are 0. Work items: rows. */
import { attributes, x, y } from '../operands/slice-columns.generated';
import { nextItems } from '../runtime/threads';

export function sliceColumns(): void {
  const begin = (<usize>attributes.begin) << 2;
  const sizeBytes = (<usize>y.length) << 2;
  const copied = min<usize>(sizeBytes, ((<usize>x.numInputs) << 2) - begin);
  for (let row = nextItems(1); row < x.numRows; row = nextItems(1)) {
    memory.copy(y.rowAt(row), x.rowAt(row) + begin, copied);
    memory.fill(y.rowAt(row) + copied, 0, sizeBytes - copied);
  }
}
