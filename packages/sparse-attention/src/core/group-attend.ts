/** Exact attention of the query heads of one KV head over keys that are given one by one; each K and V row is read once. */
import type { PartialStates } from '@winnow/ops';
import type { Rows } from './rows.js';
import { SoftmaxRows } from './softmax-rows.js';

/** Reusable scratch of one group of `groupSize` query heads. */
export class GroupAttend {
  readonly groupSize: number;
  readonly headDim: number;
  readonly rows: SoftmaxRows;
  /** The scaled queries. */
  readonly query: Float64Array; // [groupSize, headDim]
  /** Logits of the keys in the order they were added, when asked for. */
  logits: Float64Array = new Float64Array(0); // [numKeys, groupSize]
  numKeys = 0;
  #keepsLogits = false;

  constructor(groupSize: number, headDim: number, valueDim: number) {
    this.groupSize = groupSize;
    this.headDim = headDim;
    this.rows = new SoftmaxRows(groupSize, valueDim);
    this.query = new Float64Array(groupSize * headDim);
  }

  /** Starts with the `groupSize` query rows at `q[offset]`. */
  begin(q: Float32Array, offset: number, scale: number, keepsLogits = false): void {
    this.rows.clear();
    this.setQuery(q, offset, scale);
    this.#keepsLogits = keepsLogits;
    this.numKeys = 0;
  }

  /** Goes on with other queries over further keys (the same queries rotated for another position). */
  setQuery(q: Float32Array, offset: number, scale: number): void {
    const { query } = this;
    for (let i = 0; i < query.length; i++) query[i] = q[offset + i] * scale;
  }

  /** `query . key` of one head of the group. */
  logit(row: number, keys: Float32Array, offset: number): number {
    const { query, headDim } = this;
    const begin = row * headDim;
    let sum = 0;
    for (let i = 0; i < headDim; i++) sum += query[begin + i] * keys[offset + i];
    return sum;
  }

  /** Attends to one key; `bias` is added to its logits. */
  add(keys: Rows, values: Rows, position: number, head: number, bias = 0): void {
    const keyOffset = keys.locate(position, head);
    const valueOffset = values.locate(position, head);
    const { groupSize, rows } = this;
    if (this.#keepsLogits) this.#reserve();
    for (let row = 0; row < groupSize; row++) {
      const logit = this.logit(row, keys.buffer, keyOffset) + bias;
      if (this.#keepsLogits) this.logits[this.numKeys * groupSize + row] = logit;
      rows.add(row, logit, values.buffer, valueOffset);
    }
    this.numKeys += 1;
  }

  #reserve(): void {
    const needed = (this.numKeys + 1) * this.groupSize;
    if (this.logits.length >= needed) return;
    const grown = new Float64Array(Math.max(1024, 2 * needed));
    grown.set(this.logits);
    this.logits = grown;
  }

  /** Attends to the first `numPositions` of `positions`. */
  addAll(keys: Rows, values: Rows, positions: Int32Array, numPositions: number, head: number): void {
    for (let i = 0; i < numPositions; i++) this.add(keys, values, positions[i], head);
  }

  /** Softmax weight of the key that was added as number `index`, for one head of the group. */
  weight(index: number, row: number): number {
    const { m, l } = this.rows;
    return l[row] === 0 ? 0 : Math.exp(this.logits[index * this.groupSize + row] - m[row]) / l[row];
  }

  /** Adds the weights of the keys `[begin, begin + count)`, summed over the group, to `target[offset + positions[i]]`. */
  addMass(target: Float32Array, offset: number, positions: Int32Array, count: number, begin = 0): void {
    for (let i = 0; i < count; i++) {
      let sum = 0;
      for (let row = 0; row < this.groupSize; row++) sum += this.weight(begin + i, row);
      target[offset + positions[i]] += sum;
    }
  }

  finish(out: Float32Array, offset: number): void {
    this.rows.finish(out, offset);
  }

  store(target: PartialStates, targetRow: number): void {
    this.rows.store(target, targetRow);
  }
}
