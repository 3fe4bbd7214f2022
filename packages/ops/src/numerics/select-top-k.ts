/**
 * Writes the `k` largest of `data[begin, begin + length)` to `values`, best first, and their indices from `begin` to
 * `indices`, in the order of the op `top-k`; `k <= length`. `values` may be `data` itself if `begin` is 0, which saves a copy
 * of rows that are not needed afterwards. Allocates nothing.
 */
export function selectTopK(
  data: Float32Array | Float64Array,
  begin: number,
  length: number,
  k: number,
  indices: Int32Array,
  values: Float32Array | Float64Array,
): void {
  // Both arrays are one binary heap with the worst kept value at the root.
  for (let i = 0; i < k; i++) {
    indices[i] = i;
    values[i] = data[begin + i];
  }
  for (let root = (k >> 1) - 1; root >= 0; root--) siftDown(indices, values, root, k);
  for (let i = k; i < length; i++) {
    const value = data[begin + i];
    if (!isWorse(values[0], indices[0], value, i)) continue;
    indices[0] = i;
    values[0] = value;
    siftDown(indices, values, 0, k);
  }
  for (let size = k - 1; size > 0; size--) {
    const [index, value] = [indices[0], values[0]];
    indices[0] = indices[size];
    values[0] = values[size];
    indices[size] = index;
    values[size] = value;
    siftDown(indices, values, 0, size);
  }
}

/** Moves the hole at the root down to a leaf, and the entry up from there: half the comparisons of the usual order. */
function siftDown(indices: Int32Array, values: Float32Array | Float64Array, root: number, size: number): void {
  const [index, value] = [indices[root], values[root]];
  let hole = root;
  for (let child = 2 * root + 1; child < size; child = 2 * hole + 1) {
    if (child + 1 < size && isWorse(values[child + 1], indices[child + 1], values[child], indices[child])) child++;
    indices[hole] = indices[child];
    values[hole] = values[child];
    hole = child;
  }
  while (hole > root) {
    const parent = (hole - 1) >> 1;
    if (!isWorse(value, index, values[parent], indices[parent])) break;
    indices[hole] = indices[parent];
    values[hole] = values[parent];
    hole = parent;
  }
  indices[hole] = index;
  values[hole] = value;
}

function isWorse(x: number, xIndex: number, y: number, yIndex: number): boolean {
  if (x < y) return true;
  if (x > y) return false;
  if (x !== y && Number.isNaN(x) !== Number.isNaN(y)) return Number.isNaN(x);
  return xIndex > yIndex;
}
