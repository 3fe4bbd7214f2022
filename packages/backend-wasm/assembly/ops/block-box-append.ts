/** Boxes around the keys of each part of a block, and the largest norm of its values. */
import {
  endRow,
  firstRow,
  keyOfPart,
  nextPart,
  openParts,
  summary,
  summaryBytes,
  valueOfPart,
} from '../attention/summary-parts';
import * as op from '../operands/block-box-append.generated';
import { takeUnits } from '../runtime/threads';

/** Norms are rounded up: they are bounds. */
const NORM_MARGIN: f64 = 1 + 1.0 / 262144;

/** Work items: KV heads. */
export function blockBoxAppend(): void {
  const keyBytes = (<usize>op.keys.headDim) << 2;
  for (let head = takeUnits(1); head < op.keys.numKvHeads; head = takeUnits(1)) {
    openParts(head);
    while (nextPart()) {
      const low = op.keyMin.address + summary * keyBytes;
      const high = op.keyMax.address + summary * keyBytes;
      const norm = op.valueNorms.address + (summary << 2);
      for (let row = firstRow; row < endRow; row++) {
        const key = keyOfPart(row);
        if (row === 0) {
          memory.copy(low, key, keyBytes);
          memory.copy(high, key, keyBytes);
          store<f32>(norm, normOf(valueOfPart(row)));
        } else {
          extendBox(low, high, key, op.keys.headDim);
          store<f32>(norm, max<f32>(load<f32>(norm), normOf(valueOfPart(row))));
        }
      }
    }
  }
}

function extendBox(low: usize, high: usize, x: usize, length: i32): void {
  for (const whole = low + ((<usize>(length & ~3)) << 2); low < whole; low += 16, high += 16, x += 16) {
    const v = v128.load(x);
    v128.store(low, f32x4.min(v128.load(low), v));
    v128.store(high, f32x4.max(v128.load(high), v));
  }
  for (const end = low + ((<usize>(length & 3)) << 2); low < end; low += 4, high += 4, x += 4) {
    const v = load<f32>(x);
    store<f32>(low, min<f32>(load<f32>(low), v));
    store<f32>(high, max<f32>(load<f32>(high), v));
  }
}

function normOf(x: usize): f32 {
  let squares: f64 = 0;
  const end = x + ((<usize>op.values.valueDim) << 2);
  for (; x < end; x += 4) squares += <f64>load<f32>(x) * <f64>load<f32>(x);
  return <f32>(Math.sqrt(squares) * NORM_MARGIN);
}

export function blockBoxAppendLocalBytes(): u64 {
  return summaryBytes();
}
