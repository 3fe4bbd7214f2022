/** Work items: rows. */
import { x, y } from '../operands/log-sum-exp.generated';
import { nextItems } from '../runtime/threads';
import { expSum, maxOf } from '../simd/exp-sum';

export function logSumExp(): void {
  const length = x.vocabSize;
  const numRows = x.numRows;
  for (let row = nextItems(1); row < numRows; row = nextItems(1)) {
    const from = x.address + ((<usize>row * <usize>length) << 2);
    const top = maxOf(from, length);
    const result = top === -Infinity ? top : <f32>(<f64>top + Math.log(expSum(from, 0, top, length)));
    store<f32>(y.address + ((<usize>row) << 2), result);
  }
}
