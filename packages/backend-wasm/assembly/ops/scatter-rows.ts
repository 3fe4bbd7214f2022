/** Work items: rows of x. */
import { rows, x, y } from '../operands/scatter-rows.generated';
import { nextItems } from '../runtime/threads';

export function scatterRows(): void {
  const list = rows.address;
  const numTokens = rows.numTokens;
  const rowBytes = (<usize>x.dim) << 2;
  for (let t = nextItems(1); t < numTokens; t = nextItems(1)) {
    const row = load<i32>(list + ((<usize>t) << 2));
    if (row >= 0) memory.copy(y.address + <usize>row * rowBytes, x.address + <usize>t * rowBytes, rowBytes);
  }
}
