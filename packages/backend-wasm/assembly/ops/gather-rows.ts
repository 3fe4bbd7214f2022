/** Work items: rows. */
import { rows, x, y } from '../operands/gather-rows.generated';
import { intAt } from '../runtime/arrays';
import { nextItems } from '../runtime/threads';

export function gatherRows(): void {
  for (let row = nextItems(1); row < rows.numRows; row = nextItems(1)) {
    memory.copy(y.rowAt(row), x.rowAt(intAt(rows.address, row)), (<usize>x.dim) << 2);
  }
}
