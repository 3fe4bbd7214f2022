/** Puts the largest values of parallel arrays first, in place, without allocating: heap selection, then heap sort. */

/**
 * Reorders `ids` and `logits` (the first `length` entries) so that the `k` largest logits come first in descending order;
 * the smaller id first among equals. Cost: `length * log k`.
 */
export function selectTop(ids: Int32Array, logits: Float32Array, length: number, k: number): void {
  const size = Math.min(k, length);
  for (let root = (size >> 1) - 1; root >= 0; root--) siftDown(ids, logits, root, size);
  for (let i = size; i < length; i++) {
    if (isWorse(ids, logits, 0, i)) {
      swap(ids, logits, 0, i);
      siftDown(ids, logits, 0, size);
    }
  }
  for (let end = size - 1; end > 0; end--) {
    swap(ids, logits, 0, end);
    siftDown(ids, logits, 0, end);
  }
}

/** The root of the heap is the worst entry. */
function siftDown(ids: Int32Array, logits: Float32Array, root: number, size: number): void {
  let parent = root;
  for (;;) {
    let child = 2 * parent + 1;
    if (child >= size) return;
    if (child + 1 < size && isWorse(ids, logits, child + 1, child)) child++;
    if (!isWorse(ids, logits, child, parent)) return;
    swap(ids, logits, child, parent);
    parent = child;
  }
}

function isWorse(ids: Int32Array, logits: Float32Array, a: number, b: number): boolean {
  const x = logits[a] as number;
  const y = logits[b] as number;
  return x < y || (x === y && (ids[a] as number) > (ids[b] as number));
}

function swap(ids: Int32Array, logits: Float32Array, a: number, b: number): void {
  const id = ids[a] as number;
  ids[a] = ids[b] as number;
  ids[b] = id;
  const logit = logits[a] as number;
  logits[a] = logits[b] as number;
  logits[b] = logit;
}
