/** Work items: rows. */
import { x, y } from '../operands/softmax.generated';
import { nextItems } from '../runtime/threads';
import { expSum, maxOf } from '../simd/exp-sum';

export function softmax(): void {
  const length = x.dim;
  const numRows = x.numRows;
  const rowBytes = (<usize>length) << 2;
  for (let row = nextItems(1); row < numRows; row = nextItems(1)) {
    const from = x.address + <usize>row * rowBytes;
    const to = y.address + <usize>row * rowBytes;
    const top = maxOf(from, length);
    if (top === -Infinity) {
      memory.fill(to, 0, rowBytes);
      continue;
    }
    const factor = 1 / expSum(from, to, top, length);
    for (let at = to; at < to + rowBytes; at += 4) store<f32>(at, <f32>(<f64>load<f32>(at) * factor));
  }
}
