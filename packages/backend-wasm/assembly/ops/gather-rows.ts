/** Work items: rows. */
import { rows, x, y } from '../operands/gather-rows.generated';
import { nextItems } from '../runtime/threads';

export function gatherRows(): void {
  const list = rows.address;
  const numRows = rows.numRows;
  const rowBytes = (<usize>x.dim) << 2;
  for (let r = nextItems(1); r < numRows; r = nextItems(1)) {
    const from = x.address + <usize>load<u32>(list + ((<usize>r) << 2)) * rowBytes;
    memory.copy(y.address + <usize>r * rowBytes, from, rowBytes);
  }
}
