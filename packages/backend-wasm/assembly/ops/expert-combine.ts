/** Weighted sum of the expert outputs of each token. Work items: runs of columns of a token. */
import { weights, x, y } from '../operands/expert-combine.generated';
import { nextItems } from '../runtime/threads';
import { loadUpTo4, storeUpTo4 } from '../simd/tail';
import { fma } from '../simd/vector';

/** Columns of a work item. */
const COLUMNS: i32 = 512;

export function expertCombine(): void {
  const numChoices = x.k;
  const rowBytes = (<usize>x.dim) << 2;
  const perToken = (x.dim + COLUMNS - 1) / COLUMNS;
  for (let item = nextItems(1); item < x.numTokens * perToken; item = nextItems(1)) {
    const t = item / perToken;
    const begin = (item % perToken) * COLUMNS;
    const end = min<i32>(x.dim, begin + COLUMNS);
    const rows = x.rowAt(t * numChoices);
    const factors = weights.rowAt(t);
    const to = y.rowAt(t);
    for (let i = begin; i < end; i += 4) {
      const at = (<usize>i) << 2;
      let sum = f32x4.splat(0);
      for (let k: usize = 0; k < <usize>numChoices; k++) {
        const from = rows + k * rowBytes + at;
        sum = fma(v128.load32_splat(factors + (k << 2)), loadUpTo4(from, end - i), sum);
      }
      storeUpTo4(to + at, sum, end - i);
    }
  }
}
