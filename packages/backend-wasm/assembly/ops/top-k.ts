import { attributes, indices, values, x } from '../operands/top-k.generated';
import { floatAt, intAt, setFloat, setInt } from '../runtime/arrays';
import { nextItems } from '../runtime/threads';

/** Work items: rows. */
export function topK(): void {
  const k = attributes.k;
  for (let row = nextItems(1); row < x.numRows; row = nextItems(1)) {
    const heap = indices.rowAt(row);
    selectTop(x.rowAt(row), x.vocabSize, heap, k);
    for (let rank = 0; rank < k; rank++) setFloat(values.rowAt(row), rank, floatAt(x.rowAt(row), intAt(heap, rank)));
  }
}

/**
 * Writes the indices of the `k` largest of `length` numbers to `heap`, best first: a binary heap of indices has the worst
 * candidate at its root; then heapsort brings the best to the front.
 */
export function selectTop(x: usize, length: i32, heap: usize, k: i32): void {
  for (let i = 0; i < k; i++) setInt(heap, i, i);
  for (let root = (k >> 1) - 1; root >= 0; root--) siftDown(x, heap, root, k);
  for (let i = k; i < length; i++) {
    const worst = intAt(heap, 0);
    const bound = floatAt(x, worst);
    // skip four numbers at once if none is above the bound; a NaN bound takes the slow path
    if (i + 4 <= length && bound === bound) {
      const four = v128.load(x + ((<usize>i) << 2));
      if (!v128.any_true(f32x4.gt(four, f32x4.splat(bound)))) {
        i += 3;
        continue;
      }
    }
    if (isWorse(x, worst, i)) {
      setInt(heap, 0, i);
      siftDown(x, heap, 0, k);
    }
  }
  for (let size = k - 1; size > 0; size--) {
    const worst = intAt(heap, 0);
    setInt(heap, 0, intAt(heap, size));
    setInt(heap, size, worst);
    siftDown(x, heap, 0, size);
  }
}

/** Whether number `a` ranks after number `b`: NaN ranks last, and ties go to the lower index. */
function isWorse(x: usize, a: i32, b: i32): bool {
  const va = floatAt(x, a);
  const vb = floatAt(x, b);
  if (va !== va || vb !== vb) return va !== va && (vb === vb || a > b);
  return va < vb || (va === vb && a > b);
}

function siftDown(x: usize, heap: usize, root: i32, size: i32): void {
  let parent = root;
  const item = intAt(heap, parent);
  for (let child = 2 * parent + 1; child < size; child = 2 * parent + 1) {
    if (child + 1 < size && isWorse(x, intAt(heap, child + 1), intAt(heap, child))) child++;
    if (!isWorse(x, intAt(heap, child), item)) break;
    setInt(heap, parent, intAt(heap, child));
    parent = child;
  }
  setInt(heap, parent, item);
}
