/**
 * sparse-combine in f32: weighted sums of the active rows of a matrix. Work items: runs of columns, so that one thread computes
 * each element of y, in row order. Up to three tokens use axpy; more use GEMM over panels of DEPTH dequantized rows and COLUMNS
 * columns. Continuing the sums of `previous` gives the same bits as a single pass if `previous` covers a multiple of
 * `neuronGroup` rows (packages/ops).
 */
import { axpyIndirect } from '../attention/microkernels.generated';
import { WEIGHTED_SUM_TABLES, beginSums, rowAddress, sparseCombineInt8 } from '../ffn/sparse-combine-int8';
import { gemmT4x8 } from '../gemm/f32-gemm.generated';
import { count, h, previous, weight, y } from '../operands/sparse-combine.generated';
import { F32, Q4_0, Q8_0, bytesOf, dequantize } from '../quant/dequantize';
import { AXPY_ROWS, FLAG_INT8, MIN_PANEL_TOKENS } from '../runtime/layout.generated';
import { hasFlag, localScratch } from '../runtime/record';
import { nextItems } from '../runtime/threads';

/** Columns of a work item: a multiple of the block size of every format. */
const COLUMNS: i32 = 256;
/** Rows of a panel. */
const DEPTH: i32 = 64;
/** Tokens per pass over the weights. */
const NC: i32 = 64;
/** Bytes for the addresses of the rows of an axpy. */
const ADDRESSES_BYTES: usize = 64;
/** Stride of dequantized rows, and size of the packed h of eight tokens, in bytes. */
const ROW_BYTES: usize = (<usize>COLUMNS) << 2;
const EIGHT_BYTES: usize = (<usize>DEPTH) << 5;

export function sparseCombine(): void {
  // k-quants have int8 dot products, but no int8 weighted sums
  if (hasFlag(FLAG_INT8) && (weight.dtype === Q8_0 || weight.dtype === Q4_0)) {
    sparseCombineInt8();
    return;
  }
  const numTokens = h.numTokens;
  for (let begin = nextItems(COLUMNS); begin < weight.dim; begin = nextItems(COLUMNS)) {
    const columns = min<i32>(COLUMNS, weight.dim - begin);
    if (numTokens < MIN_PANEL_TOKENS) addRows(begin, columns);
    else for (let t = 0; t < numTokens; t += NC) gemmPanel(begin, columns, t, min<i32>(numTokens, t + NC));
  }
}

/** Address of column `begin`, the first of a block, in active row `j`. */
function columnsOfRow(j: i32, begin: i32): usize {
  return rowAddress(j) + bytesOf(weight.dtype, begin);
}

/** axpy for up to three tokens. More rows at a time would be more streams than the hardware prefetches. */
function addRows(begin: i32, columns: i32): void {
  const numActive = load<i32>(count.address);
  const addresses = localScratch();
  const sizeBytes = (<usize>columns) << 2;
  const sums = y.address + ((<usize>begin) << 2);
  for (let t = 0; t < h.numTokens; t++) beginSums(sums + <usize>t * ((<usize>weight.dim) << 2), t, begin, columns);
  for (let j = 0; j < numActive; j += AXPY_ROWS) {
    const numRows = min<i32>(AXPY_ROWS, numActive - j);
    for (let k = 0; k < numRows; k++) {
      let row = columnsOfRow(j + k, begin);
      if (weight.dtype !== F32) {
        const floats = addresses + ADDRESSES_BYTES + <usize>k * ROW_BYTES;
        dequantize(weight.dtype, row, floats, columns);
        row = floats;
      }
      store<u32>(addresses + ((<usize>k) << 2), <u32>row);
    }
    // the rows after the last four are added without fma
    const whole = numRows & ~3;
    const rest = (<usize>whole) << 2;
    for (let t: usize = 0; t < <usize>h.numTokens; t++) {
      const to = sums + t * ((<usize>weight.dim) << 2);
      const factors = h.address + ((t * <usize>h.maxActive + <usize>j) << 2);
      axpyIndirect(to, to, 1, addresses, factors, 4, whole, sizeBytes & ~15, sizeBytes);
      if (whole < numRows) axpyIndirect(to, to, 1, addresses + rest, factors + rest, 4, numRows - whole, 0, sizeBytes);
    }
  }
}

/** GEMM of a run of tokens. Scratch: rows `[DEPTH][COLUMNS]`, h `[eight][DEPTH][8]`, sums `[column / 4][eight][4][8]`. */
function gemmPanel(begin: i32, columns: i32, first: i32, last: i32): void {
  const numActive = load<i32>(count.address);
  const numEights = (last - first + 7) >> 3;
  const numFours = (columns + 3) >> 2;
  const panel = localScratch();
  const hs = panel + <usize>DEPTH * ROW_BYTES;
  const sums = hs + <usize>(NC / 8) * EIGHT_BYTES;
  const one = f32x4.splat(1);
  memory.fill(sums, 0, (<usize>(numFours * numEights)) << 7);
  if (previous.isPresent) copySums(false, previous.address, sums, begin, columns, first, last);
  for (let j = 0; j < numActive; j += DEPTH) {
    const depth = min<i32>(DEPTH, numActive - j);
    for (let k = 0; k < depth; k++) {
      dequantize(weight.dtype, columnsOfRow(j + k, begin), panel + <usize>k * ROW_BYTES, columns);
    }
    for (let eight = 0; eight < numEights; eight++) {
      packFactors(j, depth, first + (eight << 3), last, hs + <usize>eight * EIGHT_BYTES);
    }
    for (let four = 0; four < numFours; four++) {
      const w = panel + ((<usize>four) << 4);
      for (let eight = 0; eight < numEights; eight++) {
        const c = sums + ((<usize>(four * numEights + eight)) << 7);
        gemmT4x8(c, w, ROW_BYTES, hs + <usize>eight * EIGHT_BYTES, depth, one, one);
      }
    }
  }
  copySums(true, y.address, sums, begin, columns, first, last);
}

/** Stores the sums of tokens as rows of y, or loads them from rows of `previous`. */
function copySums(isStoring: bool, tensor: usize, sums: usize, begin: i32, columns: i32, first: i32, last: i32): void {
  const numEights = (last - first + 7) >> 3;
  for (let t = first; t < last; t++) {
    const row = tensor + ((<usize>t * <usize>weight.dim + <usize>begin) << 2);
    const lane = sums + ((<usize>((t - first) >> 3)) << 7) + ((<usize>((t - first) & 7)) << 2);
    for (let i = 0; i < columns; i++) {
      const at = lane + ((<usize>((i >> 2) * numEights)) << 7) + ((<usize>(i & 3)) << 5);
      const outer = row + ((<usize>i) << 2);
      if (isStoring) store<f32>(outer, load<f32>(at));
      else store<f32>(at, load<f32>(outer));
    }
  }
}

/** Packs h of rows `[j, j + depth)` for eight tokens from `t` on as `[depth][8]`, with zeros beyond the last token. */
function packFactors(j: i32, depth: i32, t: i32, last: i32, to: usize): void {
  for (let lane = 0; lane < 8; lane++, to += 4) {
    const from = h.address + ((<usize>(t + lane) * <usize>h.maxActive + <usize>j) << 2);
    for (let k: usize = 0; k < <usize>depth; k++) {
      store<f32>(to + (k << 5), t + lane < last ? load<f32>(from + (k << 2)) : 0);
    }
  }
}

/** Per-thread scratch of weighted sums of rows of `width` columns, in f32 or in int8. */
export function weightedSumBytes(width: i32): u64 {
  const sums = (<u64>max<i32>(NC * COLUMNS, (MIN_PANEL_TOKENS - 1) * width)) << 2;
  return max<u64>(WEIGHTED_SUM_TABLES, (DEPTH * COLUMNS + NC * DEPTH) * 4) + sums + 64;
}

export function sparseCombineLocalBytes(): u64 {
  return weightedSumBytes(weight.dim);
}
