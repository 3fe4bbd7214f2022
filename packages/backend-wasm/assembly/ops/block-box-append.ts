/** Bounding boxes of the keys of each part of a block, and the largest norm of its values. */
import * as parts from '../attention/summary-parts';
import * as op from '../operands/block-box-append.generated';
import { floatAt, setFloat } from '../runtime/arrays';
import { NORM_MARGIN } from '../runtime/layout.generated';
import { nextItems } from '../runtime/threads';

/** Work items: KV heads. */
export function blockBoxAppend(): void {
  const keyBytes = (<usize>op.keys.headDim) << 2;
  for (let head = nextItems(1); head < op.keys.numKvHeads; head = nextItems(1)) {
    parts.openParts(head);
    while (parts.nextPart()) {
      const low = op.keyMin.address + parts.summary * keyBytes;
      const high = op.keyMax.address + parts.summary * keyBytes;
      const norm = op.valueNorms.address + (parts.summary << 2);
      for (let row = parts.firstRow; row < parts.endRow; row++) {
        const key = parts.keyOfPart(row);
        if (row === 0) {
          memory.copy(low, key, keyBytes);
          memory.copy(high, key, keyBytes);
          store<f32>(norm, 0);
        }
        extendBox(low, high, key, op.keys.headDim);
        store<f32>(norm, max<f32>(load<f32>(norm), normOf(parts.valueOfPart(row))));
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
  for (let i = 0; i < (length & 3); i++) {
    setFloat(low, i, min<f32>(floatAt(low, i), floatAt(x, i)));
    setFloat(high, i, max<f32>(floatAt(high, i), floatAt(x, i)));
  }
}

function normOf(x: usize): f32 {
  let squares: f64 = 0;
  for (let i = 0; i < op.values.valueDim; i++) squares += <f64>floatAt(x, i) * <f64>floatAt(x, i);
  return <f32>(Math.sqrt(squares) * NORM_MARGIN);
}

export { summaryBytes as blockBoxAppendLocalBytes } from '../attention/summary-parts';
