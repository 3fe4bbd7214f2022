/** NaN ranks below every number; ties go to the lowest index. Work items: rows. */
import { index, x } from '../operands/arg-max.generated';
import { floatAt, setInt } from '../runtime/arrays';
import { nextItems } from '../runtime/threads';
import { maxLane } from '../simd/vector';

export function argMax(): void {
  for (let row = nextItems(1); row < x.numRows; row = nextItems(1)) {
    setInt(index.address, row, argMaxOf(x.rowAt(row), x.vocabSize));
  }
}

function argMaxOf(x: usize, length: i32): i32 {
  // pmax(a, b) is b where a < b: a NaN in b loses
  let best = f32x4.splat(-Infinity);
  let i = 0;
  for (; i + 4 <= length; i += 4) best = f32x4.pmax(best, v128.load(x + ((<usize>i) << 2)));
  let top = maxLane<f32>(best);
  for (; i < length; i++) if (floatAt(x, i) > top) top = floatAt(x, i);
  for (let index = 0; index < length; index++) if (floatAt(x, index) === top) return index;
  return 0; // all NaN; a row of NaN and -Infinity has returned above
}
