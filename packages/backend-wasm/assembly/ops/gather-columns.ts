/** Work items: runs of columns of a token. */
import { count, ids, x, y } from '../operands/gather-columns.generated';
import { floatAt, intAt, setFloat } from '../runtime/arrays';
import { nextItems } from '../runtime/threads';

/** Columns of a work item. */
const COLUMNS: i32 = 1024;

export function gatherColumns(): void {
  const numActive = intAt(count.address, 0);
  const perToken = (x.maxActive + COLUMNS - 1) / COLUMNS;
  for (let item = nextItems(1); item < x.numTokens * perToken; item = nextItems(1)) {
    const from = x.rowAt(item / perToken);
    const to = y.rowAt(item / perToken);
    const begin = (item % perToken) * COLUMNS;
    const end = min<i32>(x.maxActive, begin + COLUMNS);
    const whole = min<i32>(end, max<i32>(begin, numActive));
    for (let j = begin; j < whole; j++) setFloat(to, j, floatAt(from, intAt(ids.address, j)));
    memory.fill(to + ((<usize>whole) << 2), 0, (<usize>(end - whole)) << 2);
  }
}
