/** Fills `heap` with the indices of its `heap.length` best values of `data[begin, begin + length)`, best first. */
export function selectTopK(data: Float32Array | Float64Array, begin: number, length: number, heap: Int32Array): void {
  const isWorse = (a: number, b: number): boolean => {
    const x = data[begin + a];
    const y = data[begin + b];
    if (x < y) return true;
    if (x > y) return false;
    if (x === y) return a > b;
    if (Number.isNaN(x) !== Number.isNaN(y)) return Number.isNaN(x);
    return a > b;
  };
  const siftDown = (root: number, size: number): void => {
    let parent = root;
    const item = heap[parent];
    for (;;) {
      let child = 2 * parent + 1;
      if (child >= size) break;
      if (child + 1 < size && isWorse(heap[child + 1], heap[child])) child++;
      if (!isWorse(heap[child], item)) break;
      heap[parent] = heap[child];
      parent = child;
    }
    heap[parent] = item;
  };
  const k = heap.length;
  for (let i = 0; i < k; i++) heap[i] = i;
  for (let root = (k >> 1) - 1; root >= 0; root--) siftDown(root, k);
  for (let i = k; i < length; i++) {
    if (isWorse(heap[0], i)) {
      heap[0] = i;
      siftDown(0, k);
    }
  }
  for (let size = k - 1; size > 0; size--) {
    const worst = heap[0];
    heap[0] = heap[size];
    heap[size] = worst;
    siftDown(0, size);
  }
}
