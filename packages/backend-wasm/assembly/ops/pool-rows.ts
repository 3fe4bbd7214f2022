/**
 * Pools each run of rows into one row. Work items: panels of columns of a run, so that threads share a single long text.
 * Every column is summed in row order, so that results do not depend on the batch.
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

/** Pools up to four columns of a run. */
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
