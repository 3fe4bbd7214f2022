/** Work items: rows. */
import { x, y } from '../operands/softmax.generated';
import { nextItems } from '../runtime/threads';
import { expSum, maxOf } from '../simd/exp-sum';

export function softmax(): void {
  const rowBytes = (<usize>x.dim) << 2;
  for (let row = nextItems(1); row < x.numRows; row = nextItems(1)) {
    const to = y.rowAt(row);
    const top = maxOf(x.rowAt(row), x.dim);
    if (top === -Infinity) {
      memory.fill(to, 0, rowBytes);
      continue;
    }
    const factor = 1 / expSum(x.rowAt(row), to, top, x.dim);
    for (let at = to; at < to + rowBytes; at += 4) store<f32>(at, <f32>(<f64>load<f32>(at) * factor));
  }
}
