import { ArgumentError } from '@winnow/tensor';
import { f32Only, i32Only } from './dtypes.js';
import type { OpSpec } from './op-spec.js';

/**
 * The `k` largest values of every row in descending order, with their indices, ties by lower index. NaN counts as
 * smaller than everything.
 *
 * Shapes: x `[R, V]` f32 with `k <= V`, values `[R, K]` f32, indices `[R, K]` i32.
 * Cost: V + V log K per row in the worst case.
 */
export const topK: OpSpec = {
  name: 'top-k',
  inputs: { x: { dtypes: f32Only, shape: 'R V' } },
  outputs: { values: { dtypes: f32Only, shape: 'R K' }, indices: { dtypes: i32Only, shape: 'R K' } },
  axes: { R: 'numRows', V: 'vocabSize', K: 'k' },
  attributes: { k: { kind: 'number', integer: true } },
  attributeDims: { K: 'k' },
  fixedAxes: ['V'],
  partition: 'tokens',
  check({ x }, { k }) {
    if (Number(k) < 1 || Number(k) > Number(x[1])) {
      throw new ArgumentError({ argument: 'top-k: k', expected: `1 to ${String(x[1])}`, actual: String(k) });
    }
  },
  bindReference({ inputs: { x }, outputs: { values, indices }, attributes }) {
    const k = attributes['k'] as number;
    const heap = new Int32Array(k); // a binary heap of indices, the worst kept one at the root
    return () => {
      const [numRows, length] = x.shape;
      for (let row = 0; row < numRows; row++) {
        selectTopK(x.data as Float32Array, row * length, length, heap);
        for (let rank = 0; rank < k; rank++) {
          indices.data[row * k + rank] = heap[rank];
          values.data[row * k + rank] = x.data[row * length + heap[rank]];
        }
      }
    };
  },
  flops: ({ x }) => x[0] * x[1],
};

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
