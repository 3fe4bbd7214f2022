/**
 * One row for each run of rows. Work items: panels of columns of one run, so that a single long text is shared among
 * threads. Every column is summed in the order of the rows, whatever the batch.
 */
import * as op from '../operands/pool-rows.generated';
import { nextItems } from '../runtime/threads';
import { loadTail, storeTail } from '../simd/tail';

/** Columns of a work item. */
const PANEL: i32 = 64;

export function poolRows(): void {
  const length = op.x.dim;
  const numRuns = op.starts.numSequences;
  const numPanels = (length + PANEL - 1) / PANEL;
  for (let unit = nextItems(1); unit < numRuns * numPanels; unit = nextItems(1)) {
    const run = <usize>(unit / numPanels);
    const begin = (unit % numPanels) * PANEL;
    const start = load<i32>(op.starts.address + (run << 2));
    const numRows = load<i32>(op.lengths.address + (run << 2));
    const rowBytes = (<usize>length) << 2;
    const to = op.y.address + run * rowBytes;
    const from = op.x.address + <usize>start * rowBytes;
    const end = min<i32>(length, begin + PANEL);
    for (let column = begin; column < end; column += 4) {
      const at = (<usize>column) << 2;
      const count = end - column;
      if (count >= 4) v128.store(to + at, poolColumns(from + at, rowBytes, numRows, 4));
      else storeTail(to + at, poolColumns(from + at, rowBytes, numRows, count), count);
    }
  }
}

/** Up to four columns. */
function poolColumns(from: usize, rowBytes: usize, numRows: i32, count: i32): v128 {
  if (numRows <= 0) return f32x4.splat(0);
  const kind = op.attributes.kind;
  if (kind === op.KIND_FIRST) return take(from, count);
  if (kind === op.KIND_LAST) return take(from + <usize>(numRows - 1) * rowBytes, count);
  let result = kind === op.KIND_MAX ? take(from, count) : f32x4.splat(0);
  for (let i = 0; i < numRows; i++, from += rowBytes) {
    const row = take(from, count);
    if (kind === op.KIND_MAX) result = f32x4.max(result, row);
    else if (kind === op.KIND_WEIGHTED_MEAN) result = f32x4.add(result, f32x4.mul(row, f32x4.splat(<f32>(i + 1))));
    else result = f32x4.add(result, row);
  }
  if (kind === op.KIND_MAX) return result;
  const n = <f64>numRows;
  const total = kind === op.KIND_MEAN_SQRT ? sqrt<f64>(n) : kind === op.KIND_WEIGHTED_MEAN ? 0.5 * n * (n + 1) : n;
  return f32x4.div(result, f32x4.splat(<f32>total));
}

/* @inline */ function take(at: usize, count: i32): v128 {
  return count >= 4 ? v128.load(at) : loadTail(at, count);
}
