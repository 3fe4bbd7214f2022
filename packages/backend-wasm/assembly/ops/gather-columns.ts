/** Work items: runs of columns of a token. */
import { count, ids, x, y } from '../operands/gather-columns.generated';
import { nextItems } from '../runtime/threads';

/** Columns of a work item. */
const COLUMNS: i32 = 1024;

export function gatherColumns(): void {
  const numTokens = x.numTokens;
  const numColumns = x.maxActive;
  const list = ids.address;
  const numActive = load<i32>(count.address);
  const perToken = (numColumns + COLUMNS - 1) / COLUMNS;
  for (let unit = nextItems(1); unit < numTokens * perToken; unit = nextItems(1)) {
    const row = <usize>(unit / perToken) * ((<usize>numColumns) << 2);
    const begin = (unit % perToken) * COLUMNS;
    const end = min<i32>(numColumns, begin + COLUMNS);
    const from = x.address + row;
    const to = y.address + row;
    const whole = min<i32>(end, max<i32>(begin, numActive));
    for (let j = begin; j < whole; j++) {
      const at = (<usize>j) << 2;
      store<u32>(to + at, load<u32>(from + ((<usize>load<u32>(list + at)) << 2)));
    }
    if (whole < end) memory.fill(to + ((<usize>whole) << 2), 0, (<usize>(end - whole)) << 2);
  }
}
