/**
 * sparse-combine in f32: sums of active rows of a matrix, each times a number. Work items: runs of columns, so that every number of y is
 * the sum of one thread, in the order of the rows. Up to three tokens: axpy of four rows at a time. More: GEMM over panels of DEPTH
 * dequantized rows and COLUMNS columns. Sums that go on from `previous` are those of one pass when that had a multiple of
 * `neuronGroup` rows (packages/ops).
 */
import { WEIGHTED_SUM_TABLES, sparseCombineInt8 } from '../ffn/sparse-combine-int8';
import { gemmT4x8 } from '../gemm/f32-gemm.generated';
import { count, h, previous, rows, weight, y } from '../operands/sparse-combine.generated';
import { F32, Q4_0, Q8_0, bytesOf, dequantize } from '../quant/dequantize';
import { FLAG_INT8 } from '../runtime/layout.generated';
import { hasFlag, localScratch, strideOf } from '../runtime/record';
import { takeUnits } from '../runtime/threads';
import { fma } from '../simd/vector';

/** Columns of a unit: whole blocks of every format. */
const COLUMNS: i32 = 256;
/** Rows of a panel. */
const DEPTH: i32 = 64;
/** Tokens of one pass over the weights. */
const NC: i32 = 64;
/** Fewest tokens that go through panels. */
const MIN_PANEL_TOKENS: i32 = 4;
/** Bytes from one dequantized row to the next, and of the numbers h of eight tokens. */
const ROW_BYTES: usize = (<usize>COLUMNS) << 2;
const EIGHT_BYTES: usize = (<usize>DEPTH) << 5;

export function sparseCombine(): void {
  // k-quants have integer products only
  if (hasFlag(FLAG_INT8) && (weight.dtype === Q8_0 || weight.dtype === Q4_0)) {
    sparseCombineInt8();
    return;
  }
  const numTokens = h.numTokens;
  for (let begin = takeUnits(COLUMNS); begin < weight.dim; begin = takeUnits(COLUMNS)) {
    const columns = min<i32>(COLUMNS, weight.dim - begin);
    if (numTokens < MIN_PANEL_TOKENS) addRows(begin, columns);
    else for (let t = 0; t < numTokens; t += NC) gemmPanel(begin, columns, t, min<i32>(numTokens, t + NC));
  }
}

/** Address of column `begin`, the first of a block, of the active row `j`. */
function columnsOfRow(j: i32, begin: i32): usize {
  return rowAddress(j) + bytesOf(weight.dtype, begin);
}

/** Address of the active row `j`, or of the neuron that it is part of. */
export function rowAddress(j: i32): usize {
  const row = <usize>load<u32>(rows.address + ((<usize>j) << 2));
  return weight.address + row * strideOf(bytesOf(weight.dtype, weight.dim));
}

/** What the sums of a row of y begin with, from column `begin` on: those before, or zeros. */
export function beginSums(to: usize, t: i32, begin: i32, columns: i32): void {
  const offset = (<usize>t * <usize>weight.dim + <usize>begin) << 2;
  if (previous.isPresent) memory.copy(to, previous.address + offset, (<usize>columns) << 2);
  else memory.fill(to, 0, (<usize>columns) << 2);
}

/** The columns of row `j` as f32, dequantized into slot `slot` of the scratch if need be. */
function floatsOfRow(j: i32, begin: i32, columns: i32, slot: usize): usize {
  const at = columnsOfRow(j, begin);
  if (weight.dtype === F32) return at;
  const to = localScratch() + slot * ROW_BYTES;
  dequantize(weight.dtype, at, to, columns);
  return to;
}

function addRows(begin: i32, columns: i32): void {
  const numActive = load<i32>(count.address);
  const hRow = (<usize>h.maxActive) << 2;
  const yRow = (<usize>weight.dim) << 2;
  const sums = y.address + ((<usize>begin) << 2);
  const numTokens = <usize>h.numTokens;
  for (let t: usize = 0; t < numTokens; t++) beginSums(sums + t * yRow, <i32>t, begin, columns);
  let j = 0;
  for (; j + 4 <= numActive; j += 4) {
    const w0 = floatsOfRow(j, begin, columns, 0);
    const w1 = floatsOfRow(j + 1, begin, columns, 1);
    const w2 = floatsOfRow(j + 2, begin, columns, 2);
    const w3 = floatsOfRow(j + 3, begin, columns, 3);
    for (let t: usize = 0; t < numTokens; t++) {
      addFour(sums + t * yRow, h.address + t * hRow + ((<usize>j) << 2), w0, w1, w2, w3, columns);
    }
  }
  for (; j < numActive; j++) {
    const row = floatsOfRow(j, begin, columns, 0);
    for (let t: usize = 0; t < numTokens; t++) {
      const factor = load<f32>(h.address + t * hRow + ((<usize>j) << 2));
      const to = sums + t * yRow;
      for (let i: usize = 0; i < (<usize>columns) << 2; i += 4)
        store<f32>(to + i, load<f32>(to + i) + factor * load<f32>(row + i));
    }
  }
}

/** `sums += f[0] w0 + f[1] w1 + f[2] w2 + f[3] w3`. */
function addFour(sums: usize, f: usize, w0: usize, w1: usize, w2: usize, w3: usize, columns: i32): void {
  const f0 = v128.load32_splat(f);
  const f1 = v128.load32_splat(f, 4);
  const f2 = v128.load32_splat(f, 8);
  const f3 = v128.load32_splat(f, 12);
  const end = (<usize>columns) << 2;
  let i: usize = 0;
  for (; i + 16 <= end; i += 16) {
    const two = fma(f1, v128.load(w1 + i), fma(f0, v128.load(w0 + i), v128.load(sums + i)));
    v128.store(sums + i, fma(f3, v128.load(w3 + i), fma(f2, v128.load(w2 + i), two)));
  }
  for (; i < end; i += 4) {
    let sum = load<f32>(sums + i) + load<f32>(f) * load<f32>(w0 + i);
    sum += load<f32>(f, 4) * load<f32>(w1 + i);
    sum += load<f32>(f, 8) * load<f32>(w2 + i);
    store<f32>(sums + i, sum + load<f32>(f, 12) * load<f32>(w3 + i));
  }
}

/** Tokens `[first, last)`. Scratch: rows `[DEPTH][COLUMNS]`, h `[eight][DEPTH][8]`, sums `[column / 4][eight][4][8]`. */
function gemmPanel(begin: i32, columns: i32, first: i32, last: i32): void {
  const numActive = load<i32>(count.address);
  const numEights = (last - first + 7) >> 3;
  const numFours = (columns + 3) >> 2;
  const panel = localScratch();
  const hs = panel + <usize>DEPTH * ROW_BYTES;
  const sums = hs + <usize>(NC / 8) * EIGHT_BYTES;
  const one = f32x4.splat(1);
  memory.fill(sums, 0, (<usize>(numFours * numEights)) << 7);
  if (previous.isPresent) exchange(false, previous.address, sums, begin, columns, first, last);
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
  exchange(true, y.address, sums, begin, columns, first, last);
}

/** Gives sums of tokens to rows of y, or takes them from `previous`. */
function exchange(isGiving: bool, tensor: usize, sums: usize, begin: i32, columns: i32, first: i32, last: i32): void {
  const numEights = (last - first + 7) >> 3;
  for (let t = first; t < last; t++) {
    const row = tensor + ((<usize>t * <usize>weight.dim + <usize>begin) << 2);
    const lane = sums + ((<usize>((t - first) >> 3)) << 7) + ((<usize>((t - first) & 7)) << 2);
    for (let i = 0; i < columns; i++) {
      const at = lane + ((<usize>((i >> 2) * numEights)) << 7) + ((<usize>(i & 3)) << 5);
      const outer = row + ((<usize>i) << 2);
      if (isGiving) store<f32>(outer, load<f32>(at));
      else store<f32>(at, load<f32>(outer));
    }
  }
}

/** The numbers h of rows `[j, j + depth)` for eight tokens from `t` on, as `[depth][8]`; zeros beyond the last token. */
function packFactors(j: i32, depth: i32, t: i32, last: i32, to: usize): void {
  for (let lane = 0; lane < 8; lane++, to += 4) {
    const from = h.address + ((<usize>(t + lane) * <usize>h.maxActive + <usize>j) << 2);
    for (let k: usize = 0; k < <usize>depth; k++) {
      store<f32>(to + (k << 5), t + lane < last ? load<f32>(from + (k << 2)) : 0);
    }
  }
}

/** Scratch per thread of weighted sums of rows of `width` columns, in f32 or in int8. */
export function weightedSumBytes(width: i32): u64 {
  const sums = (<u64>max<i32>(NC * COLUMNS, (MIN_PANEL_TOKENS - 1) * width)) << 2;
  return max<u64>(WEIGHTED_SUM_TABLES, (DEPTH * COLUMNS + NC * DEPTH) * 4) + sums + 64;
}

export function sparseCombineLocalBytes(): u64 {
  return weightedSumBytes(weight.dim);
}
