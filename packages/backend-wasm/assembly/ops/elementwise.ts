/** multiply, scale, scale-rows, slice-columns. Units: runs of elements, or rows. */
import { loadTail, storeTail } from '../simd/tail';
import { addressOf, attributeF, attributeI, countElements, countRows, lastDim } from '../runtime/record';
import { takeUnits } from '../runtime/threads';
import { scaleRow } from './pointwise';

/** Elements of one unit. */
const UNIT: i32 = 4096;

/** Tensors: a, b, y. */
export function multiply(): void {
  const a = addressOf(0);
  const b = addressOf(1);
  const y = addressOf(2);
  const total = countElements(0);
  for (let begin = takeUnits(UNIT); begin < total; begin = takeUnits(UNIT)) {
    const end = min<i32>(total, begin + UNIT);
    let i = begin;
    for (; i + 4 <= end; i += 4) {
      const at = (<usize>i) << 2;
      v128.store(y + at, f32x4.mul(v128.load(a + at), v128.load(b + at)));
    }
    if (i < end) {
      const at = (<usize>i) << 2;
      storeTail(y + at, f32x4.mul(loadTail(a + at, end - i), loadTail(b + at, end - i)), end - i);
    }
  }
}

/** Tensors: x, y. */
export function scale(): void {
  const total = countElements(0);
  for (let begin = takeUnits(UNIT); begin < total; begin = takeUnits(UNIT)) {
    const at = (<usize>begin) << 2;
    scaleRow(addressOf(0) + at, addressOf(1) + at, attributeF(0), min<i32>(UNIT, total - begin));
  }
}

/** Tensors: x, scales, y. */
export function scaleRows(): void {
  const length = lastDim(0);
  const numRows = countRows(0);
  const rowBytes = (<usize>length) << 2;
  for (let row = takeUnits(1); row < numRows; row = takeUnits(1)) {
    const at = <usize>row * rowBytes;
    const factor = load<f32>(addressOf(1) + ((<usize>row) << 2));
    scaleRow(addressOf(0) + at, addressOf(2) + at, factor, length);
  }
}

/** Tensors: x, y. Columns beyond the row are 0. */
export function sliceColumns(): void {
  const begin = (<usize>attributeI(0)) << 2;
  const sizeBytes = (<usize>lastDim(1)) << 2;
  const rowBytes = (<usize>lastDim(0)) << 2;
  const copied = min<usize>(sizeBytes, rowBytes - begin);
  const numRows = countRows(0);
  for (let row = takeUnits(1); row < numRows; row = takeUnits(1)) {
    const to = addressOf(1) + <usize>row * sizeBytes;
    memory.copy(to, addressOf(0) + <usize>row * rowBytes + begin, copied);
    memory.fill(to + copied, 0, sizeBytes - copied);
  }
}
