/**
 * One row for each run of rows. Work items: panels of columns of one run, so that a single long text is shared among
 * threads. Every column is summed in the order of the rows, whatever the batch.
 */
import * as op from '../operands/pool-rows.generated';
import { intAt } from '../runtime/arrays';
import { nextItems } from '../runtime/threads';
import { loadUpTo4, storeUpTo4 } from '../simd/tail';

/** Columns of a work item. */
const PANEL: i32 = 64;

export function poolRows(): void {
  const rowBytes = (<usize>op.x.dim) << 2;
  const numPanels = (op.x.dim + PANEL - 1) / PANEL;
  for (let item = nextItems(1); item < op.starts.numSequences * numPanels; item = nextItems(1)) {
    const run = item / numPanels;
    const begin = (item % numPanels) * PANEL;
    const end = min<i32>(op.x.dim, begin + PANEL);
    const numRows = intAt(op.lengths.address, run);
    const from = op.x.rowAt(intAt(op.starts.address, run));
    const to = op.y.rowAt(run);
    for (let column = begin; column < end; column += 4) {
      const at = (<usize>column) << 2;
      const count = end - column;
      storeUpTo4(to + at, poolColumns(from + at, rowBytes, numRows, count), count);
    }
  }
}

/** Up to four columns. */
function poolColumns(from: usize, rowBytes: usize, numRows: i32, count: i32): v128 {
  if (numRows <= 0) return f32x4.splat(0);
  const kind = op.attributes.kind;
  if (kind === op.KIND_FIRST) return loadUpTo4(from, count);
  if (kind === op.KIND_LAST) return loadUpTo4(from + <usize>(numRows - 1) * rowBytes, count);
  let result = kind === op.KIND_MAX ? loadUpTo4(from, count) : f32x4.splat(0);
  for (let i = 0; i < numRows; i++, from += rowBytes) {
    const row = loadUpTo4(from, count);
    if (kind === op.KIND_MAX) result = f32x4.max(result, row);
    else if (kind === op.KIND_WEIGHTED_MEAN) result = f32x4.add(result, f32x4.mul(row, f32x4.splat(<f32>(i + 1))));
    else result = f32x4.add(result, row);
  }
  if (kind === op.KIND_MAX) return result;
  const n = <f64>numRows;
  const total = kind === op.KIND_MEAN_SQRT ? sqrt<f64>(n) : kind === op.KIND_WEIGHTED_MEAN ? 0.5 * n * (n + 1) : n;
  return f32x4.div(result, f32x4.splat(<f32>total));
}
