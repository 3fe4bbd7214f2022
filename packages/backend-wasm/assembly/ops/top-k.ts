import { attributes, indices, values, x } from '../operands/top-k.generated';
import { nextItems } from '../runtime/threads';

/**
 * Work items: rows. A binary heap of indices in the output itself, the worst kept one at the
 * root; then a heap sort brings the best to the front.
 */
export function topK(): void {
  const length = x.vocabSize;
  const numRows = x.numRows;
  const k = attributes.k;
  for (let row = nextItems(1); row < numRows; row = nextItems(1)) {
    const from = x.address + ((<usize>row * <usize>length) << 2);
    const heap = indices.address + ((<usize>row * <usize>k) << 2);
    const best = values.address + ((<usize>row * <usize>k) << 2);
    selectTop(from, length, heap, k);
    for (let rank: usize = 0; rank < <usize>k; rank++) {
      store<f32>(best + (rank << 2), load<f32>(from + ((<usize>load<i32>(heap + (rank << 2))) << 2)));
    }
  }
}

/** Indices of the `k` largest of `length` numbers into `heap`, best first. */
export function selectTop(x: usize, length: i32, heap: usize, k: i32): void {
  for (let i = 0; i < k; i++) store<i32>(heap + ((<usize>i) << 2), i);
  for (let root = (k >> 1) - 1; root >= 0; root--) siftDown(x, heap, root, k);
  for (let i = k; i < length; i++) {
    const worst = load<i32>(heap);
    const bound = load<f32>(x + ((<usize>worst) << 2));
    // skip four at a time what is not above the bound; a NaN as the bound takes the careful way
    if (i + 4 <= length && bound === bound) {
      const four = v128.load(x + ((<usize>i) << 2));
      if (!v128.any_true(f32x4.gt(four, f32x4.splat(bound)))) {
        i += 3;
        continue;
      }
    }
    if (isWorse(x, worst, i)) {
      store<i32>(heap, i);
      siftDown(x, heap, 0, k);
    }
  }
  for (let size = k - 1; size > 0; size--) {
    const worst = load<i32>(heap);
    store<i32>(heap, load<i32>(heap + ((<usize>size) << 2)));
    store<i32>(heap + ((<usize>size) << 2), worst);
    siftDown(x, heap, 0, size);
  }
}

function isWorse(x: usize, a: i32, b: i32): bool {
  const va = load<f32>(x + ((<usize>a) << 2));
  const vb = load<f32>(x + ((<usize>b) << 2));
  if (va < vb) return true;
  if (va > vb) return false;
  if (va === vb) return a > b;
  const aIsNaN = va !== va;
  if (aIsNaN !== (vb !== vb)) return aIsNaN;
  return a > b;
}

function siftDown(x: usize, heap: usize, root: i32, size: i32): void {
  let parent = root;
  const item = load<i32>(heap + ((<usize>parent) << 2));
  for (;;) {
    let child = 2 * parent + 1;
    if (child >= size) break;
    if (child + 1 < size) {
      if (isWorse(x, load<i32>(heap + ((<usize>(child + 1)) << 2)), load<i32>(heap + ((<usize>child) << 2)))) child++;
    }
    const best = load<i32>(heap + ((<usize>child) << 2));
    if (!isWorse(x, best, item)) break;
    store<i32>(heap + ((<usize>parent) << 2), best);
    parent = child;
  }
  store<i32>(heap + ((<usize>parent) << 2), item);
}
