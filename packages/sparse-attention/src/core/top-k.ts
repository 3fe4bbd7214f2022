/** The k largest of many values in linear expected time, ties to the lower index, ascending indices. */

/** Reusable scratch. */
export class TopK {
  #values = new Float64Array(0);

  /**
   * Writes the indices of the `k` largest of `scores[0 ... length)` to `out` in ascending order and returns how many.
   * Equal scores: the lower index wins. NaN counts as -Infinity.
   */
  select(scores: Float64Array | Float32Array, length: number, k: number, out: Int32Array): number {
    const count = Math.min(k, length);
    if (count <= 0) return 0;
    if (count === length) {
      for (let i = 0; i < length; i++) out[i] = i;
      return count;
    }
    if (this.#values.length < length) this.#values = new Float64Array(Math.max(length, 2 * this.#values.length));
    const values = this.#values;
    for (let i = 0; i < length; i++) values[i] = Number.isNaN(scores[i]) ? -Infinity : scores[i];
    const threshold = kthLargest(values, length, count);
    let numAbove = 0;
    for (let i = 0; i < length; i++) if (scores[i] > threshold) numAbove += 1;
    let numEqual = count - numAbove;
    let n = 0;
    for (let i = 0; i < length && n < count; i++) {
      if (scores[i] > threshold) out[n++] = i;
      else if (numEqual > 0 && (scores[i] === threshold || (threshold === -Infinity && Number.isNaN(scores[i])))) {
        out[n++] = i;
        numEqual -= 1;
      }
    }
    return n;
  }
}

/** Quickselect with three-way partition; reorders `values`. `1 <= k <= length`. */
function kthLargest(values: Float64Array, length: number, k: number): number {
  let begin = 0;
  let end = length;
  let wanted = k - 1; // index in descending order
  let random = 0x9e3779b9; // a fixed stream: no input in natural order (sorted, organ pipe) is bad for it
  for (;;) {
    if (end - begin === 1) return values[begin];
    random = (Math.imul(random, 1664525) + 1013904223) >>> 0;
    const size = end - begin;
    const any = begin + Math.floor((random / 2 ** 32) * size);
    const pivot = medianOfThree(
      values[any],
      values[begin + (size >>> 1)],
      values[begin + ((any - begin + (size >>> 2)) % size)],
    );
    let above = begin; // [begin, above) > pivot, [above, i) = pivot, [below, end) < pivot
    let below = end;
    let i = begin;
    while (i < below) {
      const value = values[i];
      if (value > pivot) {
        values[i++] = values[above];
        values[above++] = value;
      } else if (value < pivot) {
        values[i] = values[--below];
        values[below] = value;
      } else {
        i += 1;
      }
    }
    if (wanted < above - begin) {
      end = above;
    } else if (wanted < below - begin) {
      return pivot;
    } else {
      wanted -= below - begin;
      begin = below;
    }
  }
}

function medianOfThree(a: number, b: number, c: number): number {
  return Math.max(Math.min(a, b), Math.min(Math.max(a, b), c));
}
