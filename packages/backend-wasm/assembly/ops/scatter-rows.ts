/** Work items: rows of x. */
import { rows, x, y } from '../operands/scatter-rows.generated';
import { intAt } from '../runtime/arrays';
import { nextItems } from '../runtime/threads';

export function scatterRows(): void {
  for (let t = nextItems(1); t < rows.numTokens; t = nextItems(1)) {
    const row = intAt(rows.address, t);
    if (row >= 0) memory.copy(y.rowAt(row), x.rowAt(t), (<usize>x.dim) << 2);
  }
}
