/** Work items: rows. */
import { x, y } from '../operands/log-sum-exp.generated';
import { setFloat } from '../runtime/arrays';
import { nextItems } from '../runtime/threads';
import { expSum, maxOf } from '../simd/exp-sum';

export function logSumExp(): void {
  for (let row = nextItems(1); row < x.numRows; row = nextItems(1)) {
    const top = maxOf(x.rowAt(row), x.vocabSize);
    const sum = top === -Infinity ? 1 : expSum(x.rowAt(row), 0, top, x.vocabSize);
    setFloat(y.address, row, <f32>(<f64>top + Math.log(sum)));
  }
}
