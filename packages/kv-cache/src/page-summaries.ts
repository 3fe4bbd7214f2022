/**
 * What is known about each block without reading it, kept up to date as slots are written, emptied and copied. Values are
 * those that are stored: after rounding to the cache's dtypes, and rotated if keys are.
 */
import { ArgumentError, invariant } from '@winnow/tensor';
import type { BlockCopy } from './block-types.js';
import type { KvStorage } from './kv-storage.js';

export interface PageSummaryOptions {
  /** Means of keys and values, with their number. */
  readonly landmarks?: boolean;
  /** Smallest and largest of each component of the keys, and the largest norm of the values. */
  readonly bounds?: boolean;
  /** Keys component by component: `[H, S]` per head, in f32. */
  readonly transposedKeys?: boolean;
}

/** Summaries per block and KV head. Rows are views into memory that changes with the next call. */
export interface PageSummaries {
  /** Filled slots of a block. */
  count(block: number): number;
  meanKey(block: number, kvHead: number, out: Float32Array): void;
  meanValue(block: number, kvHead: number, out: Float32Array): void;
  /** `Infinity` and `-Infinity` for an empty block. */
  minKey(block: number, kvHead: number): Float32Array;
  maxKey(block: number, kvHead: number): Float32Array;
  /** Largest Euclidean norm of a value, rounded up to f32; 0 for an empty block. */
  maxValueNorm(block: number, kvHead: number): number;
  /** Component `i` of the keys: one value per slot, 0 in empty ones. */
  keyComponent(block: number, kvHead: number, component: number): Float32Array;
  /**
   * A slot is about to be written. If it counts as filled, a sequence was truncated there: it and what lies behind it in the
   * block go.
   */
  prepare(slot: number): void;
  /** A slot has been written. */
  add(slot: number): void;
  /** A slot is about to be emptied; its key and value are still there. */
  remove(slot: number): void;
  /** A block holds nothing. */
  reset(block: number): void;
  /** A block is the copy of the first slots of another one; the storage has copied them already. */
  copy(copy: BlockCopy): void;
  /** A page has been written over a block: what it holds is read again. */
  reload(block: number): void;
  readonly sizeBytes: number;
}

export function createPageSummaries(storage: KvStorage, options: PageSummaryOptions): PageSummaries {
  const { numBlocks, blockSize, numKvHeads, headDim, valueDim, slotPositions } = storage;
  const numRows = numBlocks * numKvHeads;
  const { landmarks = false, bounds = false, transposedKeys = false } = options;
  const isFilled = new Uint8Array(numBlocks * blockSize);
  const counts = new Int32Array(numBlocks);
  // sums in f64, so that what is added and taken away again leaves next to nothing
  const keySums = new Float64Array(landmarks ? numRows * headDim : 0);
  const valueSums = new Float64Array(landmarks ? numRows * valueDim : 0);
  const minima = new Float32Array(bounds ? numRows * headDim : 0).fill(Infinity);
  const maxima = new Float32Array(bounds ? numRows * headDim : 0).fill(-Infinity);
  const norms = new Float32Array(bounds ? numRows : 0);
  const transposed = new Float32Array(transposedKeys ? numRows * headDim * blockSize : 0);
  const key = new Float32Array(headDim);
  const value = new Float32Array(valueDim);

  function blockOf(slot: number): number {
    return Math.floor(slot / blockSize);
  }

  function include(slot: number, sign: 1 | -1): void {
    const block = blockOf(slot);
    for (let head = 0; head < numKvHeads; head++) {
      const row = block * numKvHeads + head;
      if (landmarks || bounds || transposedKeys) storage.readKey(slot, head, key, 0);
      if (landmarks || bounds) storage.readValue(slot, head, value, 0);
      if (landmarks) {
        for (let i = 0; i < headDim; i++) keySums[row * headDim + i] += sign * key[i];
        for (let i = 0; i < valueDim; i++) valueSums[row * valueDim + i] += sign * value[i];
      }
      if (transposedKeys) {
        const begin = row * headDim * blockSize + (slot % blockSize);
        for (let i = 0; i < headDim; i++) transposed[begin + i * blockSize] = sign > 0 ? key[i] : 0;
      }
      if (bounds && sign > 0) widen(row);
    }
  }

  /** Widens the bounds of a row to `key` and `value`. */
  function widen(row: number): void {
    for (let i = 0, at = row * headDim; i < headDim; i++, at++) {
      if (key[i] < minima[at]) minima[at] = key[i];
      if (key[i] > maxima[at]) maxima[at] = key[i];
    }
    const norm = roundedUp(normOf(value));
    if (norm > norms[row]) norms[row] = norm;
  }

  /** Whether `key` or `value` is what a bound of the row comes from. */
  function isExtreme(row: number): boolean {
    for (let i = 0, at = row * headDim; i < headDim; i++, at++) {
      if (key[i] === minima[at] || key[i] === maxima[at]) return true;
    }
    return roundedUp(normOf(value)) >= norms[row];
  }

  function clearBounds(row: number): void {
    minima.fill(Infinity, row * headDim, (row + 1) * headDim);
    maxima.fill(-Infinity, row * headDim, (row + 1) * headDim);
    norms[row] = 0;
  }

  function remove(slot: number): void {
    if (isFilled[slot] === 0) return;
    const block = blockOf(slot);
    isFilled[slot] = 0;
    counts[block]--;
    include(slot, -1);
    for (let head = 0; bounds && head < numKvHeads; head++) {
      const row = block * numKvHeads + head;
      storage.readKey(slot, head, key, 0);
      storage.readValue(slot, head, value, 0);
      if (!isExtreme(row)) continue;
      clearBounds(row);
      for (let other = block * blockSize; other < (block + 1) * blockSize; other++) {
        if (isFilled[other] === 0) continue;
        storage.readKey(other, head, key, 0);
        storage.readValue(other, head, value, 0);
        widen(row);
      }
    }
    if (counts[block] === 0) {
      reset(block); // no rounding is left over
    } else if (landmarks && !isFinite(block)) {
      refill(block, (other) => isFilled[other] === 1); // what is not finite cannot be taken away from a sum
    }
  }

  function isFinite(block: number): boolean {
    const begin = block * numKvHeads;
    const end = begin + numKvHeads;
    return (
      keySums.subarray(begin * headDim, end * headDim).every(Number.isFinite) &&
      valueSums.subarray(begin * valueDim, end * valueDim).every(Number.isFinite)
    );
  }

  function reset(block: number): void {
    isFilled.fill(0, block * blockSize, (block + 1) * blockSize);
    counts[block] = 0;
    const begin = block * numKvHeads;
    const end = begin + numKvHeads;
    keySums.fill(0, begin * headDim, end * headDim);
    valueSums.fill(0, begin * valueDim, end * valueDim);
    transposed.fill(0, begin * headDim * blockSize, end * headDim * blockSize);
    for (let row = begin; bounds && row < end; row++) clearBounds(row);
  }

  function fill(slot: number): void {
    isFilled[slot] = 1;
    counts[blockOf(slot)]++;
    include(slot, 1);
  }

  function refill(block: number, isWanted: (slot: number) => boolean): void {
    const slots: number[] = [];
    for (let slot = block * blockSize; slot < (block + 1) * blockSize; slot++) if (isWanted(slot)) slots.push(slot);
    reset(block);
    slots.forEach(fill);
  }

  const reload = (block: number): void => refill(block, (slot) => slotPositions[slot] >= 0);

  function mean(sums: Float64Array, dim: number, block: number, kvHead: number, out: Float32Array): void {
    need('landmarks', landmarks);
    const begin = (block * numKvHeads + kvHead) * dim;
    const factor = counts[block] === 0 ? 0 : 1 / counts[block];
    for (let i = 0; i < dim; i++) out[i] = sums[begin + i] * factor;
  }

  function keyRow(rows: Float32Array, block: number, kvHead: number): Float32Array {
    need('bounds', bounds);
    const begin = (block * numKvHeads + kvHead) * headDim;
    return rows.subarray(begin, begin + headDim);
  }

  return {
    count: (block) => counts[block],
    meanKey: (block, kvHead, out) => mean(keySums, headDim, block, kvHead, out),
    meanValue: (block, kvHead, out) => mean(valueSums, valueDim, block, kvHead, out),
    minKey: (block, kvHead) => keyRow(minima, block, kvHead),
    maxKey: (block, kvHead) => keyRow(maxima, block, kvHead),
    maxValueNorm(block, kvHead) {
      need('bounds', bounds);
      return norms[block * numKvHeads + kvHead];
    },
    keyComponent(block, kvHead, component) {
      need('transposedKeys', transposedKeys);
      const begin = ((block * numKvHeads + kvHead) * headDim + component) * blockSize;
      return transposed.subarray(begin, begin + blockSize);
    },
    prepare(slot) {
      if (isFilled[slot] === 0) return;
      const end = (blockOf(slot) + 1) * blockSize;
      for (let stale = slot; stale < end; stale++) remove(stale);
    },
    add(slot) {
      invariant(isFilled[slot] === 0, `slot ${slot} was not prepared`);
      fill(slot);
    },
    remove,
    reset,
    reload,
    copy({ to }) {
      reload(to);
    },
    sizeBytes:
      isFilled.byteLength +
      counts.byteLength +
      keySums.byteLength +
      valueSums.byteLength +
      2 * minima.byteLength +
      norms.byteLength +
      transposed.byteLength,
  };
}

function need(option: string, isKept: boolean): void {
  if (!isKept) throw new ArgumentError({ argument: option, expected: 'a summary that is kept', actual: 'not kept' });
}

function normOf(values: Float32Array): number {
  let sum = 0;
  for (let i = 0; i < values.length; i++) sum += values[i] * values[i];
  return Math.sqrt(sum);
}

/** A float32 that is not below `norm`; the factor covers the rounding of the sum as well. */
function roundedUp(norm: number): number {
  return Math.fround(norm * (1 + 2 ** -23));
}
