/**
 * The flash form: a block of queries shares each tile of the window, read once in ascending order; then the scattered
 * edges and landmarks of each query; then normalise. Working memory depends on the tile only, not on the sequence.
 */
import { ArgumentError, type Tensor3 } from '@winnow/tensor';
import { reportVisit, type AttendOptions, type FamilyShape } from '../core/family.js';
import type { KvRows, Rows } from '../core/rows.js';
import { SoftmaxRows } from '../core/softmax-rows.js';
import type { CandidateSet } from './candidates.js';
import type { Landmarks } from './landmarks.js';

/** Tiles of keys and values, the queries of one block and their states. */
export class FlashScratch {
  readonly tile: number;
  readonly keys: Float32Array; // [tile, headDim]
  readonly values: Float32Array; // [tile, valueDim]
  readonly query: Float64Array; // [tile, groupSize, headDim]
  readonly rows: SoftmaxRows; // [tile * groupSize]

  /** @throws {ArgumentError} unless the tile is a positive integer */
  constructor({ groupSize, headDim, valueDim }: FamilyShape, tile: number) {
    if (!Number.isSafeInteger(tile) || tile < 1) {
      throw new ArgumentError({ argument: 'flashTile', expected: 'a positive integer', actual: String(tile) });
    }
    this.tile = tile;
    this.keys = new Float32Array(tile * headDim);
    this.values = new Float32Array(tile * valueDim);
    this.query = new Float64Array(tile * groupSize * headDim);
    this.rows = new SoftmaxRows(tile * groupSize, valueDim);
  }

  get sizeBytes(): number {
    const { keys, values, query, rows } = this;
    return keys.byteLength + values.byteLength + query.byteLength + rows.o.byteLength + 2 * rows.m.byteLength;
  }
}

interface FlashSources {
  readonly candidates: CandidateSet;
  readonly landmarks: Landmarks;
  readonly shape: FamilyShape;
  readonly kv: KvRows;
}

/** Returns the pairs visited, over all query heads. */
export function attendFlash(
  scratch: FlashScratch,
  sources: FlashSources,
  q: Tensor3,
  begin: number,
  out: Tensor3,
  { visits, states }: AttendOptions,
): number {
  const { shape, candidates, kv } = sources;
  const { numHeads, numKvHeads, groupSize, valueDim } = shape;
  const { rows, tile } = scratch;
  let pairs = 0;
  for (let first = 0; first < q.seqLen; first += tile) {
    const numQueries = Math.min(tile, q.seqLen - first);
    for (let kvHead = 0; kvHead < numKvHeads; kvHead++) {
      loadQueries(scratch, shape, q, first, numQueries, kvHead);
      rows.clear();
      pairs += windowTiles(scratch, sources, begin + first, numQueries, kvHead);
      pairs += edges(scratch, sources, begin + first, numQueries, kvHead);
      for (let t = 0; t < numQueries; t++) {
        const row = (first + t) * numHeads + kvHead * groupSize;
        rows.finish(out.data, row * valueDim, t * groupSize, groupSize);
        if (states !== undefined) rows.store(states, row, t * groupSize, groupSize);
      }
    }
    if (visits === undefined) continue;
    for (let t = 0; t < numQueries; t++) {
      candidates.enumerate(begin + first + t, kv.length);
      const { tokens, numTokens, blocks, numBlocks } = candidates;
      reportVisit(visits, begin + first + t, 0, numHeads, tokens, numTokens, blocks, numBlocks);
    }
  }
  return pairs;
}

function loadQueries(
  { query }: FlashScratch,
  { numHeads, groupSize, headDim, scale }: FamilyShape,
  q: Tensor3,
  first: number,
  numQueries: number,
  kvHead: number,
): void {
  const width = groupSize * headDim;
  for (let t = 0; t < numQueries; t++) {
    const from = ((first + t) * numHeads + kvHead * groupSize) * headDim;
    for (let i = 0; i < width; i++) query[t * width + i] = q.data[from + i] * scale;
  }
}

function windowTiles(
  scratch: FlashScratch,
  { candidates, kv, shape }: FlashSources,
  firstPosition: number,
  numQueries: number,
  kvHead: number,
): number {
  const { window } = candidates.policy;
  const { groupSize, headDim, valueDim } = shape;
  const { tile, keys, values } = scratch;
  const reach = candidates.causal ? 0 : window;
  const lastPosition = firstPosition + numQueries - 1;
  const windowEnd = Math.min(kv.length, lastPosition + reach + 1);
  let pairs = 0;
  for (let base = Math.max(0, firstPosition - window); base < windowEnd; base += tile) {
    const tileEnd = Math.min(windowEnd, base + tile);
    for (let j = base; j < tileEnd; j++) {
      copyRow(kv.keys, j, kvHead, keys, (j - base) * headDim);
      copyRow(kv.values, j, kvHead, values, (j - base) * valueDim);
    }
    for (let t = 0; t < numQueries; t++) {
      const position = firstPosition + t;
      const from = Math.max(base, position - window);
      const to = Math.min(tileEnd, position + reach + 1);
      for (let j = from; j < to; j++) {
        addKey(scratch, t, groupSize, keys, (j - base) * headDim, values, (j - base) * valueDim, 0);
      }
      pairs += Math.max(0, to - from) * groupSize;
    }
  }
  return pairs;
}

function edges(
  scratch: FlashScratch,
  { candidates, landmarks, kv, shape }: FlashSources,
  firstPosition: number,
  numQueries: number,
  kvHead: number,
): number {
  const { groupSize } = shape;
  const hasBias = candidates.policy.landmarkBias === 'log-count';
  let pairs = 0;
  for (let t = 0; t < numQueries; t++) {
    candidates.enumerate(firstPosition + t, kv.length, true);
    const { tokens, numTokens, blocks, numBlocks } = candidates;
    for (let i = 0; i < numTokens; i++) {
      const keyOffset = kv.keys.locate(tokens[i], kvHead);
      const valueOffset = kv.values.locate(tokens[i], kvHead);
      addKey(scratch, t, groupSize, kv.keys.buffer, keyOffset, kv.values.buffer, valueOffset, 0);
    }
    for (let b = 0; b < numBlocks; b++) {
      const keyOffset = landmarks.keys.locate(blocks[b], kvHead);
      const valueOffset = landmarks.values.locate(blocks[b], kvHead);
      const bias = hasBias ? Math.log(landmarks.count(blocks[b])) : 0;
      addKey(scratch, t, groupSize, landmarks.keys.buffer, keyOffset, landmarks.values.buffer, valueOffset, bias);
    }
    pairs += (numTokens + numBlocks) * groupSize;
  }
  return pairs;
}

function addKey(
  { query, rows, tile, keys: tileKeys }: FlashScratch,
  t: number,
  groupSize: number,
  keys: Float32Array,
  keyOffset: number,
  values: Float32Array,
  valueOffset: number,
  bias: number,
): void {
  const headDim = tileKeys.length / tile;
  for (let row = t * groupSize; row < (t + 1) * groupSize; row++) {
    let logit = 0;
    for (let i = 0; i < headDim; i++) logit += query[row * headDim + i] * keys[keyOffset + i];
    rows.add(row, logit + bias, values, valueOffset);
  }
}

function copyRow(source: Rows, position: number, head: number, target: Float32Array, offset: number): void {
  const from = source.locate(position, head);
  for (let i = 0; i < source.dim; i++) target[offset + i] = source.buffer[from + i];
}
