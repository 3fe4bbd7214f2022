/**
 * Weighted sums of chosen rows of a matrix, in f32. Tensors: h, weight, rows, count, previous, y. Units: runs of columns, so
 * that every number of y is the sum of one thread, in the order of the rows. Up to three tokens: four rows at a time. More:
 * rows are decoded in panels of DEPTH rows and COLUMNS columns, and eight tokens lie side by side in registers. Sums that go
 * on from `previous` are those of one pass when that had a multiple of `neuronGroup` rows (packages/ops).
 */
import { F32, Q4_0, Q8_0, bytesOf, decode } from '../quant/dequantize';
import { FLAG_INT8 } from '../runtime/layout.generated';
import { addressOf, dim, dtypeOf, hasFlag, isPresent, localScratch, strideOf } from '../runtime/record';
import { fma } from '../simd/vector';
import { takeUnits } from '../runtime/threads';
import { gemmT4x8 } from '../gemm/f32-gemm.generated';
import { sparseCombineInt8 } from '../ffn/sparse-combine-int8';

/** Columns of a unit: whole blocks of every format. */
const COLUMNS: i32 = 256;
/** Rows of a panel. */
const DEPTH: i32 = 64;
/** Tokens of one pass over the weights. */
const NC: i32 = 64;
/** Fewest tokens that go by tiles. */
const MIN_TILE_TOKENS: i32 = 4;

export function sparseCombine(): void {
  // k-quants have integer products only
  if (hasFlag(FLAG_INT8) && (dtypeOf(1) === Q8_0 || dtypeOf(1) === Q4_0)) {
    sparseCombineInt8();
    return;
  }
  const numTokens = dim(0, 0);
  const numOutputs = dim(1, 1);
  for (let begin = takeUnits(COLUMNS); begin < numOutputs; begin = takeUnits(COLUMNS)) {
    const columns = min<i32>(COLUMNS, numOutputs - begin);
    if (numTokens < MIN_TILE_TOKENS) {
      byRows(begin, columns, numTokens);
      continue;
    }
    for (let t = 0; t < numTokens; t += NC) byTiles(begin, columns, t, min<i32>(numTokens, t + NC));
  }
}

/** Address of column `begin`, the first of a block, of the chosen row `j`. */
export function columnsOfRow(j: i32, begin: i32): usize {
  return rowAddress(j) + bytesOf(dtypeOf(1), begin);
}

/** Address of the chosen row `j`, or of the record that it is part of. */
export function rowAddress(j: i32): usize {
  const row = <usize>load<u32>(addressOf(2) + ((<usize>j) << 2));
  return addressOf(1) + row * strideOf(bytesOf(dtypeOf(1), dim(1, 1)));
}

/** What the sums of a row of y begin with, from column `begin` on: those before, or zeros. */
export function beginSums(to: usize, t: i32, begin: i32, columns: i32): void {
  const offset = (<usize>t * <usize>dim(1, 1) + <usize>begin) << 2;
  if (isPresent(4)) memory.copy(to, addressOf(4) + offset, (<usize>columns) << 2);
  else memory.fill(to, 0, (<usize>columns) << 2);
}

/** The same as f32, decoded into slot `slot` of the scratch if need be. */
function floatsOfRow(j: i32, begin: i32, columns: i32, slot: i32): usize {
  const at = columnsOfRow(j, begin);
  if (dtypeOf(1) === F32) return at;
  const to = localScratch() + <usize>slot * ((<usize>COLUMNS) << 2);
  decode(dtypeOf(1), at, to, columns);
  return to;
}

function byRows(begin: i32, columns: i32, numTokens: i32): void {
  const count = load<i32>(addressOf(3));
  const hRow = (<usize>dim(0, 1)) << 2;
  const yRow = (<usize>dim(1, 1)) << 2;
  const y = addressOf(5) + ((<usize>begin) << 2);
  for (let t = 0; t < numTokens; t++) beginSums(y + <usize>t * yRow, t, begin, columns);
  let j = 0;
  for (; j + 4 <= count; j += 4) {
    const w0 = floatsOfRow(j, begin, columns, 0);
    const w1 = floatsOfRow(j + 1, begin, columns, 1);
    const w2 = floatsOfRow(j + 2, begin, columns, 2);
    const w3 = floatsOfRow(j + 3, begin, columns, 3);
    for (let t: usize = 0; t < <usize>numTokens; t++) {
      addFour(y + t * yRow, addressOf(0) + t * hRow + ((<usize>j) << 2), w0, w1, w2, w3, columns);
    }
  }
  for (; j < count; j++) {
    const row = floatsOfRow(j, begin, columns, 0);
    for (let t: usize = 0; t < <usize>numTokens; t++) {
      const h = load<f32>(addressOf(0) + t * hRow + ((<usize>j) << 2));
      const to = y + t * yRow;
      for (let i: usize = 0; i < (<usize>columns) << 2; i += 4)
        store<f32>(to + i, load<f32>(to + i) + h * load<f32>(row + i));
    }
  }
}

/** `y += h[0] w0 + h[1] w1 + h[2] w2 + h[3] w3`. */
function addFour(y: usize, h: usize, w0: usize, w1: usize, w2: usize, w3: usize, columns: i32): void {
  const h0 = v128.load32_splat(h);
  const h1 = v128.load32_splat(h, 4);
  const h2 = v128.load32_splat(h, 8);
  const h3 = v128.load32_splat(h, 12);
  const end = (<usize>columns) << 2;
  let i: usize = 0;
  for (; i + 16 <= end; i += 16) {
    const ab = fma(h1, v128.load(w1 + i), fma(h0, v128.load(w0 + i), v128.load(y + i)));
    v128.store(y + i, fma(h3, v128.load(w3 + i), fma(h2, v128.load(w2 + i), ab)));
  }
  for (; i < end; i += 4) {
    let sum = load<f32>(y + i) + load<f32>(h) * load<f32>(w0 + i);
    sum += load<f32>(h, 4) * load<f32>(w1 + i);
    sum += load<f32>(h, 8) * load<f32>(w2 + i);
    store<f32>(y + i, sum + load<f32>(h, 12) * load<f32>(w3 + i));
  }
}

/** Tokens `[first, last)`. Scratch: rows `[DEPTH][COLUMNS]`, h `[panel][DEPTH][8]`, sums `[column / 4][panel][4][8]`. */
function byTiles(begin: i32, columns: i32, first: i32, last: i32): void {
  const count = load<i32>(addressOf(3));
  const numPanels = (last - first + 7) >> 3;
  const numFours = (columns + 3) >> 2;
  const rows = localScratch();
  const stride = (<usize>COLUMNS) << 2;
  const hs = rows + <usize>DEPTH * stride;
  const sums = hs + <usize>(NC / 8) * ((<usize>DEPTH) << 5);
  const one = f32x4.splat(1);
  memory.fill(sums, 0, (<usize>(numFours * numPanels)) << 7);
  if (isPresent(4)) exchange(4, sums, begin, columns, first, last);
  for (let j = 0; j < count; j += DEPTH) {
    const depth = min<i32>(DEPTH, count - j);
    for (let k = 0; k < depth; k++) {
      decode(dtypeOf(1), columnsOfRow(j + k, begin), rows + <usize>k * stride, columns);
    }
    for (let p = 0; p < numPanels; p++)
      packFactors(j, depth, first + (p << 3), last, hs + <usize>p * ((<usize>DEPTH) << 5));
    for (let four = 0; four < numFours; four++) {
      const w = rows + ((<usize>four) << 4);
      for (let p = 0; p < numPanels; p++) {
        const c = sums + ((<usize>(four * numPanels + p)) << 7);
        gemmT4x8(c, w, stride, hs + <usize>p * ((<usize>DEPTH) << 5), depth, one, one);
      }
    }
  }
  exchange(5, sums, begin, columns, first, last);
}

/** Takes sums from `previous`, tensor 4, or gives them to y, tensor 5. */
function exchange(tensor: i32, sums: usize, begin: i32, columns: i32, first: i32, last: i32): void {
  const numPanels = (last - first + 7) >> 3;
  for (let t = first; t < last; t++) {
    const row = addressOf(tensor) + ((<usize>t * <usize>dim(1, 1) + <usize>begin) << 2);
    const lane = sums + ((<usize>((t - first) >> 3)) << 7) + ((<usize>((t - first) & 7)) << 2);
    for (let i = 0; i < columns; i++) {
      const at = lane + ((<usize>((i >> 2) * numPanels)) << 7) + ((<usize>(i & 3)) << 5);
      const outer = row + ((<usize>i) << 2);
      if (tensor === 4) store<f32>(at, load<f32>(outer));
      else store<f32>(outer, load<f32>(at));
    }
  }
}

/** Factors of rows `[j, j + depth)` for eight tokens from `t` on, as `[depth][8]`; zeros beyond the last token. */
function packFactors(j: i32, depth: i32, t: i32, last: i32, to: usize): void {
  for (let lane = 0; lane < 8; lane++, to += 4) {
    const from = addressOf(0) + ((<usize>(t + lane) * <usize>dim(0, 1) + <usize>j) << 2);
    for (let k: usize = 0; k < <usize>depth; k++) {
      store<f32>(to + (k << 5), t + lane < last ? load<f32>(from + (k << 2)) : 0);
    }
  }
}
