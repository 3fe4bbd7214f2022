/** NaN is smaller than everything; the lowest index among equals. Work items: rows. */
import { index, x } from '../operands/arg-max.generated';
import { nextItems } from '../runtime/threads';
import { maxLane } from '../simd/vector';

export function argMax(): void {
  const length = x.vocabSize;
  const numRows = x.numRows;
  for (let row = nextItems(1); row < numRows; row = nextItems(1)) {
    const from = x.address + ((<usize>row * <usize>length) << 2);
    store<i32>(index.address + ((<usize>row) << 2), argMaxOf(from, length));
  }
}

function argMaxOf(x: usize, length: i32): i32 {
  // pmax(a, b) is b where a < b: a NaN in b loses
  let best = f32x4.splat(-Infinity);
  let i = 0;
  for (; i + 4 <= length; i += 4) best = f32x4.pmax(best, v128.load(x + ((<usize>i) << 2)));
  let top = maxLane<f32>(best);
  for (; i < length; i++) {
    const value = load<f32>(x + ((<usize>i) << 2));
    if (value > top) top = value;
  }
  for (let index = 0; index < length; index++) if (load<f32>(x + ((<usize>index) << 2)) === top) return index;
  return 0; // only NaN; a row of NaN and -Infinity was found above
}
