/**
 * Attention of one token's query heads over cached slots in tiles with an online softmax: scratch of a fixed size whatever
 * the context. Tiles are filled with visible keys in slot order, so the result depends on their order and not on blocks.
 * Sums run in f64. For kernels that are fast, see the backends; this is the plain form on typed arrays.
 */
import type { PartialStates } from '@winnow/ops';
import { ArgumentError, ShapeError } from '@winnow/tensor';
import { rotateRows } from './hadamard.js';
import { mergeStates } from './partial-states.js';

/** Cached keys and values by logical slot. */
export interface SlotReader {
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly valueDim: number;
  /** Keys are stored rotated by a Hadamard matrix. */
  readonly rotateKeys: boolean;
  readonly numSlots: number;
  /** Position that a slot holds, negative for none. */
  position(logicalSlot: number): number;
  readKey(logicalSlot: number, kvHead: number, out: Float32Array, outOffset: number): void;
  readValue(logicalSlot: number, kvHead: number, out: Float32Array, outOffset: number): void;
}

export interface AttendOptions {
  /** Position of the query. Later keys are not seen. Default: the largest one. */
  readonly position?: number;
  /** Default `1 / sqrt(headDim)`. */
  readonly scale?: number;
  /** Logits `s` become `softCap * tanh(s / softCap)`. Default 0: as they are. */
  readonly softCap?: number;
  /** Keys at positions `[minPosition, maxPosition]` are seen. Default: all. */
  readonly minPosition?: number;
  readonly maxPosition?: number;
  /** Keys per tile. Default 64. */
  readonly tileSize?: number;
  /** Receives, added up over heads, the probability of each logical slot; `numSlots` values. Costs a second pass. */
  readonly masses?: Float32Array;
}

/**
 * Softmax-weighted sum of values, merged into row `n` of `states` for each query head `n`.
 * @param q `[N, H]`; query head `n` reads KV head `floor(n * K / N)`
 * @throws {ShapeError | ArgumentError} when the query does not fit the cache
 */
export function attendPartial(
  reader: SlotReader,
  q: Float32Array,
  states: PartialStates,
  options: AttendOptions = {},
): void {
  const { numKvHeads, headDim, valueDim, numSlots } = reader;
  const numHeads = q.length / headDim;
  if (!Number.isInteger(numHeads) || numHeads % numKvHeads !== 0 || numHeads === 0) {
    const expected = `a multiple of ${numKvHeads} heads of ${headDim}`;
    throw new ShapeError({ op: 'attend', rule: 'query', expected, actual: `${q.length} values` });
  }
  const { scale = 1 / Math.sqrt(headDim), softCap = 0, tileSize = 64, minPosition = 0 } = options;
  const maxPosition = Math.min(options.position ?? Infinity, options.maxPosition ?? Infinity);
  if (!Number.isSafeInteger(tileSize) || tileSize < 1) {
    throw new ArgumentError({ argument: 'tileSize', expected: 'a positive integer', actual: String(tileSize) });
  }
  const query = Float32Array.from(q);
  if (reader.rotateKeys) rotateRows(query, headDim);
  const groupSize = numHeads / numKvHeads;
  const keys = new Float32Array(tileSize * headDim);
  const values = new Float32Array(tileSize * valueDim);
  const logits = new Float64Array(tileSize);
  const slots = new Int32Array(tileSize);
  const sums = new Float64Array(groupSize * valueDim);
  const maxima = new Float64Array(groupSize);
  const denominators = new Float64Array(groupSize);
  const part = { m: new Float32Array(1), l: new Float32Array(1), o: new Float32Array(valueDim) };

  const logitsOf = (head: number, numKeys: number): number => {
    let max = -Infinity;
    for (let t = 0; t < numKeys; t++) {
      let logit = 0;
      for (let i = 0, a = head * headDim, b = t * headDim; i < headDim; i++) logit += query[a + i] * keys[b + i];
      logit *= scale;
      if (softCap !== 0) logit = softCap * Math.tanh(logit / softCap);
      logits[t] = logit;
      if (logit > max || Number.isNaN(logit)) max = logit;
    }
    return max;
  };

  /** Calls `compute` with tiles of visible keys of one KV head. */
  const forTiles = (kvHead: number, withValues: boolean, compute: (numKeys: number) => void): void => {
    let numKeys = 0;
    for (let slot = 0; slot < numSlots; slot++) {
      const position = reader.position(slot);
      if (position < 0 || position < minPosition || position > maxPosition) continue;
      reader.readKey(slot, kvHead, keys, numKeys * headDim);
      if (withValues) reader.readValue(slot, kvHead, values, numKeys * valueDim);
      slots[numKeys++] = slot;
      if (numKeys < tileSize) continue;
      compute(numKeys);
      numKeys = 0;
    }
    if (numKeys > 0) compute(numKeys);
  };

  for (let kvHead = 0; kvHead < numKvHeads; kvHead++) {
    maxima.fill(-Infinity);
    denominators.fill(0);
    sums.fill(0);
    forTiles(kvHead, true, (numKeys) => {
      for (let g = 0; g < groupSize; g++) {
        const tileMax = logitsOf(kvHead * groupSize + g, numKeys);
        if (tileMax === -Infinity) continue;
        const max = Math.max(maxima[g], tileMax);
        const shrink = maxima[g] === -Infinity ? 0 : Math.exp(maxima[g] - max);
        maxima[g] = max;
        denominators[g] *= shrink;
        const begin = g * valueDim;
        for (let i = 0; i < valueDim; i++) sums[begin + i] *= shrink;
        for (let t = 0; t < numKeys; t++) {
          const weight = Math.exp(logits[t] - max);
          denominators[g] += weight;
          for (let i = 0, b = t * valueDim; i < valueDim; i++) sums[begin + i] += weight * values[b + i];
        }
      }
    });
    for (let g = 0; g < groupSize; g++) {
      if (maxima[g] === -Infinity) continue;
      part.m[0] = maxima[g];
      const rounding = Math.exp(maxima[g] - part.m[0]); // the sums are relative to the maximum as it is stored
      part.l[0] = denominators[g] * rounding;
      for (let i = 0; i < valueDim; i++) part.o[i] = sums[g * valueDim + i] * rounding;
      mergeStates(states, kvHead * groupSize + g, part, 0, valueDim);
    }
    if (options.masses === undefined) continue;
    const { masses } = options;
    forTiles(kvHead, false, (numKeys) => {
      for (let g = 0; g < groupSize; g++) {
        logitsOf(kvHead * groupSize + g, numKeys);
        for (let t = 0; t < numKeys; t++) masses[slots[t]] += Math.exp(logits[t] - maxima[g]) / denominators[g];
      }
    });
  }
}
