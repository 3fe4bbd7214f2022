/** Adds the biases of active experts. Work items: rows (token, choice). */
import { bias, ids, x, y } from '../operands/expert-bias.generated';
import { intAt } from '../runtime/arrays';
import { nextItems } from '../runtime/threads';
import { loadUpTo4, storeUpTo4 } from '../simd/tail';

export function expertBias(): void {
  for (let row = nextItems(1); row < x.numTokens * x.k; row = nextItems(1)) {
    const from = x.rowAt(row);
    const to = y.rowAt(row);
    const own = bias.rowAt(intAt(ids.address, row));
    for (let i = 0; i < x.numOutputs; i += 4) {
      const at = (<usize>i) << 2;
      const left = x.numOutputs - i;
      storeUpTo4(to + at, f32x4.add(loadUpTo4(from + at, left), loadUpTo4(own + at, left)), left);
    }
  }
}
