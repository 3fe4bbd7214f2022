/** States of the online softmax: merging and finishing. Units: rows (token, head). */
import { addressOf, dim, isPresent } from '../runtime/record';
import { takeUnits } from '../runtime/threads';
import { finishRow } from './attention';

/** Tensors: m, l, o, optional m2, l2, o2, then the merged m, l, o. */
export function attentionMerge(): void {
  const numParts = dim(0, 0);
  const rows = dim(0, 1) * dim(0, 2);
  const valueDim = dim(2, 3);
  const hasSecond = isPresent(3);
  const m = addressOf(6);
  const l = addressOf(7);
  const o = addressOf(8);
  for (let row = takeUnits(1); row < rows; row = takeUnits(1)) {
    store<f32>(m + ((<usize>row) << 2), -Infinity);
    store<f32>(l + ((<usize>row) << 2), 0);
    memory.fill(o + ((<usize>row * <usize>valueDim) << 2), 0, (<usize>valueDim) << 2);
    for (let part = 0; part < numParts; part++) {
      mergeState(m, l, o, row, addressOf(0), addressOf(1), addressOf(2), part * rows + row, valueDim);
    }
    if (!hasSecond) continue;
    for (let part = 0; part < dim(3, 0); part++) {
      mergeState(m, l, o, row, addressOf(3), addressOf(4), addressOf(5), part * rows + row, valueDim);
    }
  }
}

/** Merges the parts of a row into its first part. */
export function mergeRows(m: usize, l: usize, o: usize, numParts: i32, rows: i32, row: i32, valueDim: i32): void {
  for (let part = 1; part < numParts; part++) mergeState(m, l, o, row, m, l, o, part * rows + row, valueDim);
}

function mergeState(
  m: usize,
  l: usize,
  o: usize,
  row: i32,
  sourceM: usize,
  sourceL: usize,
  sourceO: usize,
  sourceRow: i32,
  valueDim: i32,
): void {
  const sourceMax = load<f32>(sourceM + ((<usize>sourceRow) << 2));
  if (sourceMax === -Infinity) return;
  const mAt = m + ((<usize>row) << 2);
  const lAt = l + ((<usize>row) << 2);
  const targetMax = load<f32>(mAt);
  const top = max<f32>(targetMax, sourceMax);
  const targetScale = targetMax === -Infinity ? <f32>0 : <f32>Math.exp(<f64>targetMax - <f64>top);
  const sourceScale = <f32>Math.exp(<f64>sourceMax - <f64>top);
  store<f32>(mAt, top);
  store<f32>(lAt, load<f32>(lAt) * targetScale + load<f32>(sourceL + ((<usize>sourceRow) << 2)) * sourceScale);
  let to = o + ((<usize>row * <usize>valueDim) << 2);
  let from = sourceO + ((<usize>sourceRow * <usize>valueDim) << 2);
  for (let i = 0; i < valueDim; i++, to += 4, from += 4) {
    store<f32>(to, load<f32>(to) * targetScale + load<f32>(from) * sourceScale);
  }
}

/** Tensors: l, o, y. */
export function attentionFinish(): void {
  const rows = dim(2, 0) * dim(2, 1);
  const valueDim = dim(2, 2);
  for (let row = takeUnits(1); row < rows; row = takeUnits(1)) {
    finishRow(0, addressOf(0), addressOf(1), row, addressOf(2), valueDim);
  }
}
