/**
 * sparse-matmul, activations in f32. Work items: runs of active rows. One to three tokens: GEMV of four rows at a time. More: GEMM in
 * panels.
 */
import { gatheredInt8Bytes, sparseMatmulInt8 } from '../ffn/sparse-matmul-int8';
import { gemv4, readableRow, readableRowBytes } from '../gemm/f32-gemv';
import {
  beginF32Panel,
  f32PanelBytes,
  f32PanelSums,
  listRow,
  MC,
  multiplyEights,
  packTokens,
} from '../gemm/f32-panels';
import { bias, count, ids, rows, weight, x, y } from '../operands/sparse-matmul.generated';
import { bytesOf } from '../quant/dequantize';
import { FLAG_INT8 } from '../runtime/layout.generated';
import { hasFlag, localScratch, sharedScratch, strideOf } from '../runtime/record';
import { phaseBarrier, takeUnits } from '../runtime/threads';
import { storeUpTo4 } from '../simd/tail';

/** Tokens of one pass over the weights. */
const NC: i32 = 256;
/** Fewest tokens that go through panels. */
const MIN_PANEL_TOKENS: i32 = 4;

export function sparseMatmul(): void {
  if (hasFlag(FLAG_INT8)) {
    sparseMatmulInt8();
    return;
  }
  const numTokens = x.numTokens;
  const isPanels = numTokens >= MIN_PANEL_TOKENS;
  if (isPanels) {
    const numEights = (numTokens + 7) >> 3;
    for (let eight = takeUnits(1); eight < numEights; eight = takeUnits(1)) {
      const to = sharedScratch() + ((<usize>eight * <usize>x.dim) << 5);
      packTokens(x.address, eight, numTokens, x.dim, to, localScratch());
    }
    phaseBarrier();
  }
  const numActive = activeCount();
  const unit = isPanels || numActive >= 1024 ? MC : 8;
  let begin = takeUnits(unit);
  for (; begin < numActive; begin = takeUnits(unit)) {
    const end = min<i32>(numActive, begin + unit);
    if (!isPanels) gemvRows(begin, end);
    else for (let t = 0; t < numTokens; t += NC) gemmPanel(begin, end, t, min<i32>(numTokens, t + NC));
  }
  clearRest(begin, numActive, unit);
}

/** How many rows are active. */
export function activeCount(): i32 {
  return load<i32>(count.address);
}

/** Address of the active row `j` of the weight. */
export function activeRow(j: i32, rowBytes: usize): usize {
  return weight.address + <usize>load<u32>(rows.address + ((<usize>j) << 2)) * strideOf(rowBytes);
}

/**
 * What lies behind the active ones becomes 0. `begin` is the first unit beyond them that this thread got: all of it is left
 * to the one that got the very first, as long as it is little.
 */
export function clearRest(begin: i32, numActive: i32, unit: i32): void {
  const end = rows.maxActive;
  const first = ((numActive + unit - 1) / unit) * unit;
  const isLittle = x.numTokens < MIN_PANEL_TOKENS;
  if (begin === first) clearColumns(numActive, isLittle ? end : min<i32>(first, end));
  if (isLittle) return;
  for (; begin < end; begin = takeUnits(unit)) clearColumns(begin, min<i32>(end, begin + unit));
}

function clearColumns(begin: i32, end: i32): void {
  for (let t = 0; t < x.numTokens; t++) {
    const at = y.address + ((<usize>t * <usize>rows.maxActive + <usize>begin) << 2);
    memory.fill(at, 0, (<usize>(end - begin)) << 2);
  }
}

/** Stores the sums of the active rows from `j` on, those below `end`, plus their biases. */
export function storeActive(sums: v128, j: i32, end: i32, t: i32): void {
  const to = y.address + ((<usize>t * <usize>rows.maxActive + <usize>j) << 2);
  if (bias.isPresent) {
    const neurons = ids.isPresent ? ids.address : rows.address;
    const b0 = biasOf(neurons, j);
    const b1 = biasOf(neurons, min<i32>(j + 1, end - 1));
    const b2 = biasOf(neurons, min<i32>(j + 2, end - 1));
    const b3 = biasOf(neurons, min<i32>(j + 3, end - 1));
    sums = f32x4.add(sums, f32x4(b0, b1, b2, b3));
  }
  storeUpTo4(to, sums, end - j);
}

function biasOf(neurons: usize, j: i32): f32 {
  return load<f32>(bias.address + ((<usize>load<u32>(neurons + ((<usize>j) << 2))) << 2));
}

/** Active row `j` as `gemv4` reads it. */
function rowAt(j: i32, slot: usize): usize {
  const at = activeRow(j, bytesOf(weight.dtype, x.dim));
  return readableRow(weight.dtype, at, slot, x.dim, localScratch());
}

/** The active rows `[begin, end)` times all tokens. */
export function gemvRows(begin: i32, end: i32): void {
  const numInputs = x.dim;
  for (let j = begin; j < end; j += 4) {
    // beyond the end the last row stands in
    const w0 = rowAt(j, 0);
    const w1 = rowAt(min<i32>(end - 1, j + 1), 1);
    const w2 = rowAt(min<i32>(end - 1, j + 2), 2);
    const w3 = rowAt(min<i32>(end - 1, j + 3), 3);
    for (let t = 0; t < x.numTokens; t++) {
      const from = x.address + ((<usize>t * <usize>numInputs) << 2);
      storeActive(gemv4(weight.dtype, from, w0, w1, w2, w3, numInputs), j, end, t);
    }
  }
}

/** The active rows `[begin, end)` times tokens `[first, last)`. */
function gemmPanel(begin: i32, end: i32, first: i32, last: i32): void {
  const rowBytes = bytesOf(weight.dtype, x.dim);
  const stride = (<usize>x.dim) << 5;
  beginF32Panel(localScratch(), weight.dtype, end - begin, (last - first + 7) >> 3);
  for (let j = begin; j < end; j++) listRow(j - begin, activeRow(j, rowBytes));
  multiplyEights(x.dim, sharedScratch() + <usize>(first >> 3) * stride, stride);
  for (let j = begin; j < end; j += 4) {
    for (let t = first; t < last; t++) storeActive(f32PanelSums(j - begin, t - first), j, end, t);
  }
}

/** Scratch per thread of GEMM with gathered rows of `width` columns; activations may stay in f32 in spite of the flag. */
export function gatheredGemmBytes(dtype: i32, width: i32): u64 {
  const floats = max<u64>(readableRowBytes(width), f32PanelBytes(NC));
  return hasFlag(FLAG_INT8) ? max<u64>(floats, gatheredInt8Bytes(dtype, width)) : floats;
}

export function sparseMatmulLocalBytes(): u64 {
  return gatheredGemmBytes(weight.dtype, weight.dim);
}

/** Tokens side by side by eight, as f32 or as 8-bit codes with their scales. */
export function sparseMatmulSharedBytes(): u64 {
  return ((<u64>((x.numTokens + 7) & ~7) * x.dim) << 2) + 256;
}
