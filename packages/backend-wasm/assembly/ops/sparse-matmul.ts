/**
 * Products with chosen rows of a matrix, activations in f32. Tensors: x, weight, rows, count, bias, ids, y. Units: runs of
 * chosen rows. One to three tokens: dot products of four rows at a time. More: eight tokens side by side in registers, rows
 * decoded in panels of MC rows and KC columns.
 */
import { dots4F16 } from '../gemm/f16-dot';
import { F16, F32, bytesOf, decode } from '../quant/dequantize';
import { FLAG_INT8 } from '../runtime/layout.generated';
import { addressOf, dim, dtypeOf, hasFlag, isPresent, localScratch, sharedScratch, strideOf } from '../runtime/record';
import { phaseBarrier, takeUnits } from '../runtime/threads';
import { gemm4x8 } from '../gemm/f32-gemm.generated';
import { dots4, packTokens } from './matmul';
import { sparseMatmulInt8 } from '../ffn/sparse-matmul-int8';

/** Rows of a panel. */
const MC: i32 = 32;
/** Columns of a panel. */
const KC: i32 = 512;
/** Tokens of one pass over the weights. */
const NC: i32 = 256;
/** Fewest tokens that go by tiles. */
const MIN_TILE_TOKENS: i32 = 4;

export function sparseMatmul(): void {
  if (hasFlag(FLAG_INT8)) {
    sparseMatmulInt8();
    return;
  }
  const numTokens = dim(0, 0);
  const numInputs = dim(0, 1);
  const count = chosenCount();
  const isTiles = numTokens >= MIN_TILE_TOKENS;
  const panelBytes = (<usize>numInputs) << 5;
  if (isTiles) {
    const numPanels = (numTokens + 7) >> 3;
    for (let p = takeUnits(1); p < numPanels; p = takeUnits(1)) {
      packTokens(addressOf(0), sharedScratch() + <usize>p * panelBytes, p << 3, numTokens, numInputs);
    }
    phaseBarrier();
  }
  const unit = isTiles || count >= 1024 ? MC : 8;
  let begin = takeUnits(unit);
  for (; begin < count; begin = takeUnits(unit)) {
    const end = min<i32>(count, begin + unit);
    if (!isTiles) {
      chosenByDots(begin, end);
      continue;
    }
    for (let t = 0; t < numTokens; t += NC) tileBlock(begin, end, t, min<i32>(numTokens, t + NC), panelBytes);
  }
  clearRest(begin, count, unit);
}

/** How many rows are chosen. */
export function chosenCount(): i32 {
  return load<i32>(addressOf(3));
}

/** Address of the chosen row `j` of the weight. */
export function chosenRow(j: i32, rowBytes: usize): usize {
  return addressOf(1) + <usize>load<u32>(addressOf(2) + ((<usize>j) << 2)) * strideOf(rowBytes);
}

/**
 * What lies behind the chosen ones becomes 0. `begin` is the first unit beyond them that this thread got: all of it is left
 * to the one that got the very first, as long as it is little.
 */
export function clearRest(begin: i32, count: i32, unit: i32): void {
  const numColumns = dim(2, 0);
  const numTokens = dim(0, 0);
  const first = ((count + unit - 1) / unit) * unit;
  const isLittle = numTokens < MIN_TILE_TOKENS;
  if (begin === first) clearColumns(count, isLittle ? numColumns : min<i32>(first, numColumns), numTokens, numColumns);
  if (isLittle) return;
  for (; begin < numColumns; begin = takeUnits(unit)) {
    clearColumns(begin, min<i32>(numColumns, begin + unit), numTokens, numColumns);
  }
}

function clearColumns(begin: i32, end: i32, numTokens: i32, numColumns: i32): void {
  for (let t = 0; t < numTokens; t++) {
    const at = addressOf(6) + ((<usize>t * <usize>numColumns + <usize>begin) << 2);
    memory.fill(at, 0, (<usize>(end - begin)) << 2);
  }
}

/** Stores the sums of the chosen rows from `j` on, those below `end`, plus their biases. */
export function storeChosen(sums: v128, j: i32, end: i32, t: i32): void {
  const y = addressOf(6) + ((<usize>t * <usize>dim(2, 0) + <usize>j) << 2);
  if (isPresent(4)) {
    const ids = addressOf(isPresent(5) ? 5 : 2);
    sums = f32x4.add(
      sums,
      f32x4(
        biasOf(ids, j),
        biasOf(ids, min<i32>(j + 1, end - 1)),
        biasOf(ids, min<i32>(j + 2, end - 1)),
        biasOf(ids, min<i32>(j + 3, end - 1)),
      ),
    );
  }
  if (j + 4 <= end) {
    v128.store(y, sums);
    return;
  }
  store<f32>(y, f32x4.extract_lane(sums, 0));
  if (j + 1 < end) store<f32>(y, f32x4.extract_lane(sums, 1), 4);
  if (j + 2 < end) store<f32>(y, f32x4.extract_lane(sums, 2), 8);
}

function biasOf(ids: usize, j: i32): f32 {
  return load<f32>(addressOf(4) + ((<usize>load<u32>(ids + ((<usize>j) << 2))) << 2));
}

/** Address of a chosen row that `dots4` can read: f32 and f16 as they are, everything else decoded into slot `slot`. */
function rowAt(dtype: i32, j: i32, slot: i32, numInputs: i32): usize {
  const at = chosenRow(j, bytesOf(dtype, numInputs));
  if (dtype === F32 || dtype === F16) return at;
  const to = localScratch() + <usize>slot * ((<usize>numInputs) << 2);
  decode(dtype, at, to, numInputs);
  return to;
}

/** The chosen rows `[begin, end)` times all tokens. */
export function chosenByDots(begin: i32, end: i32): void {
  const numTokens = dim(0, 0);
  const numInputs = dim(0, 1);
  const dtype = dtypeOf(1);
  for (let j = begin; j < end; j += 4) {
    // beyond the end the last row stands in
    const w0 = rowAt(dtype, j, 0, numInputs);
    const w1 = rowAt(dtype, min<i32>(end - 1, j + 1), 1, numInputs);
    const w2 = rowAt(dtype, min<i32>(end - 1, j + 2), 2, numInputs);
    const w3 = rowAt(dtype, min<i32>(end - 1, j + 3), 3, numInputs);
    for (let t = 0; t < numTokens; t++) {
      const x = addressOf(0) + ((<usize>t * <usize>numInputs) << 2);
      const sums = dtype === F16 ? dots4F16(x, w0, w1, w2, w3, numInputs) : dots4(x, w0, w1, w2, w3, numInputs);
      storeChosen(sums, j, end, t);
    }
  }
}

/** The chosen rows `[begin, end)` times tokens `[first, last)`. */
function tileBlock(begin: i32, end: i32, first: i32, last: i32, panelBytes: usize): void {
  const numInputs = dim(0, 1);
  const dtype = dtypeOf(1);
  const rowBytes = bytesOf(dtype, numInputs);
  const firstPanel = first >> 3;
  const numPanels = ((last + 7) >> 3) - firstPanel;
  const numRows = end - begin;
  const decoded = localScratch();
  const sums = decoded + <usize>(MC * KC * 4);
  const stride = (<usize>KC) << 2;
  for (let k = 0; k < numInputs; k += KC) {
    const depth = min<i32>(KC, numInputs - k);
    if (dtype !== F32) {
      for (let r = 0; r < numRows; r++) {
        decode(dtype, chosenRow(begin + r, rowBytes) + bytesOf(dtype, k), decoded + <usize>r * stride, depth);
      }
    }
    for (let p = 0; p < numPanels; p++) {
      const x = sharedScratch() + <usize>(firstPanel + p) * panelBytes + ((<usize>k) << 5);
      for (let r = 0; r < numRows; r += 4) {
        const c = sums + ((<usize>((r >> 2) * numPanels + p)) << 7);
        const w0 = panelRow(dtype, begin, r, numRows, k, rowBytes, decoded);
        const w1 = panelRow(dtype, begin, r + 1, numRows, k, rowBytes, decoded);
        const w2 = panelRow(dtype, begin, r + 2, numRows, k, rowBytes, decoded);
        const w3 = panelRow(dtype, begin, r + 3, numRows, k, rowBytes, decoded);
        gemm4x8(c, w0, w1, w2, w3, x, depth, k > 0);
      }
    }
  }
  for (let r = 0; r < numRows; r += 4) {
    for (let t = first; t < last; t++) {
      const lane = sums + ((<usize>((r >> 2) * numPanels + ((t - first) >> 3))) << 7) + ((<usize>(t & 7)) << 2);
      const four = f32x4(load<f32>(lane), load<f32>(lane, 32), load<f32>(lane, 64), load<f32>(lane, 96));
      storeChosen(four, begin + r, end, t);
    }
  }
}

/** Columns from `k` on of row `r` of a panel, or of the last one beyond its end. */
function panelRow(dtype: i32, begin: i32, r: i32, numRows: i32, k: i32, rowBytes: usize, decoded: usize): usize {
  const row = min<i32>(r, numRows - 1);
  if (dtype === F32) return chosenRow(begin + row, rowBytes) + ((<usize>k) << 2);
  return decoded + <usize>row * ((<usize>KC) << 2);
}
