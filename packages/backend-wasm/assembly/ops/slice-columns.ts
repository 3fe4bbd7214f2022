/** Columns before and past a row are 0. Work items: rows. */
import { attributes, x, y } from '../operands/slice-columns.generated';
import { nextItems } from '../runtime/threads';

export function sliceColumns(): void {
  const begin = (<isize>attributes.begin) << 2;
  const sizeBytes = (<isize>y.length) << 2;
  const before = min<isize>(sizeBytes, max<isize>(0, -begin));
  const skipped = max<isize>(0, begin);
  const copied = min<isize>(sizeBytes - before, ((<isize>x.numInputs) << 2) - skipped);
  const after = sizeBytes - before - copied;
  for (let row = nextItems(1); row < x.numRows; row = nextItems(1)) {
    memory.fill(y.rowAt(row), 0, before);
    memory.copy(y.rowAt(row) + before, x.rowAt(row) + skipped, copied);
    memory.fill(y.rowAt(row) + before + copied, 0, after);
  }
}
