/** Work items: runs of columns of a token. */
import { weights, x, y } from '../operands/expert-combine.generated';
import { nextItems } from '../runtime/threads';
import { loadTail, storeTail } from '../simd/tail';
import { fma } from '../simd/vector';

/** Columns of a work item. */
const UNIT: i32 = 512;

export function expertCombine(): void {
  const numTokens = x.numTokens;
  const numChoices = x.k;
  const length = x.dim;
  const rowBytes = (<usize>length) << 2;
  const perToken = (length + UNIT - 1) / UNIT;
  const numUnits = numTokens * perToken;
  for (let unit = nextItems(1); unit < numUnits; unit = nextItems(1)) {
    const t = unit / perToken;
    const begin = (unit % perToken) * UNIT;
    const end = min<i32>(length, begin + UNIT);
    const rows = x.address + <usize>(t * numChoices) * rowBytes;
    const factors = weights.address + ((<usize>(t * numChoices)) << 2);
    const to = y.address + <usize>t * rowBytes;
    for (let i = begin; i < end; i += 4) {
      const at = (<usize>i) << 2;
      let sum = f32x4.splat(0);
      for (let k: usize = 0; k < <usize>numChoices; k++) {
        const from = rows + k * rowBytes + at;
        const v = i + 4 <= end ? v128.load(from) : loadTail(from, end - i);
        sum = fma(v128.load32_splat(factors + (k << 2)), v, sum);
      }
      if (i + 4 <= end) v128.store(to + at, sum);
      else storeTail(to + at, sum, end - i);
    }
  }
}
