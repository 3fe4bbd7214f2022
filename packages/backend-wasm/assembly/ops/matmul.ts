/**
 * matmul, activations in f32.  Work items: groups of output rows. One to three tokens: GEMV of four rows
 * at a time. More: GEMM in panels.
 */
import { bytesOf } from '../quant/dequantize';
import {
  beginF32Panel,
  f32PanelBytes,
  f32PanelSums,
  listRow,
  MC,
  multiplyEights,
  packTokens,
} from '../gemm/f32-panels';
import { gemv4, readableRow, readableRowBytes } from '../gemm/f32-gemv';
import { matmulInt8 } from '../gemm/int8-matmul';
import { FLAG_INT8 } from '../runtime/layout.generated';
import { bias, weight, x, y } from '../operands/matmul.generated';
import { hasFlag, localScratch, sharedScratch } from '../runtime/record';
import { phaseBarrier, takeUnits } from '../runtime/threads';

/** Tokens of one pass over the weights. */
const NC: i32 = 256;
/** Fewest tokens that go through panels. */
const MIN_PANEL_TOKENS: i32 = 4;

// of this op, set on each thread
let numTokens: i32 = 0;
let numInputs: i32 = 0;
let numOutputs: i32 = 0;
let dtype: i32 = 0;
let rowBytes: usize = 0;

export function matmul(): void {
  if (hasFlag(FLAG_INT8)) {
    matmulInt8();
    return;
  }
  readShape();
  if (numTokens >= MIN_PANEL_TOKENS) gemm();
  else gemv();
}

function readShape(): void {
  numTokens = x.numTokens;
  numInputs = weight.numInputs;
  numOutputs = weight.numOutputs;
  dtype = weight.dtype;
  rowBytes = bytesOf(dtype, numInputs);
}

function gemv(): void {
  const unit = numOutputs >= 1024 ? 64 : 16;
  for (let begin = takeUnits(unit); begin < numOutputs; begin = takeUnits(unit)) {
    // four runs of rows side by side: as streams they are prefetched from row to row
    const count = min<i32>(numOutputs - begin, unit);
    const run = (count + 3) >> 2;
    for (let i = 0; i < run; i++) gemvRows(begin + i, run, begin + count - 1);
  }
}

/** Every `run`th of four rows from `o` on; beyond `last` it stands in, and its results are those of that row. */
function gemvRows(o: i32, run: i32, last: i32): void {
  const o1 = min<i32>(last, o + run);
  const o2 = min<i32>(last, o + 2 * run);
  const o3 = min<i32>(last, o + 3 * run);
  const w0 = rowAt(o, 0);
  const w1 = rowAt(o1, 1);
  const w2 = rowAt(o2, 2);
  const w3 = rowAt(o3, 3);
  for (let t: usize = 0; t < <usize>numTokens; t++) {
    let sums = gemv4(dtype, x.address + ((t * <usize>numInputs) << 2), w0, w1, w2, w3, numInputs);
    if (bias.isPresent) sums = f32x4.add(sums, f32x4(biasOf(o), biasOf(o1), biasOf(o2), biasOf(o3)));
    const to = y.address + ((t * <usize>numOutputs) << 2);
    store<f32>(to + ((<usize>o) << 2), f32x4.extract_lane(sums, 0));
    store<f32>(to + ((<usize>o1) << 2), f32x4.extract_lane(sums, 1));
    store<f32>(to + ((<usize>o2) << 2), f32x4.extract_lane(sums, 2));
    store<f32>(to + ((<usize>o3) << 2), f32x4.extract_lane(sums, 3));
  }
}

function biasOf(o: i32): f32 {
  return load<f32>(bias.address + ((<usize>o) << 2));
}

/** The rows from `begin` on, three at most: what is left of weights that are interleaved by four. */
export function lastRows(begin: i32): void {
  readShape();
  for (let o = begin; o < numOutputs; o++) gemvRows(o, 0, o);
}

/** Row `row` of the weight as `gemv4` reads it. */
function rowAt(row: i32, slot: usize): usize {
  return readableRow(dtype, weight.address + <usize>row * rowBytes, slot, numInputs, localScratch());
}

function gemm(): void {
  const stride = (<usize>numInputs) << 5;
  const numEights = (numTokens + 7) >> 3;
  for (let eight = takeUnits(1); eight < numEights; eight = takeUnits(1)) {
    const to = sharedScratch() + <usize>eight * stride;
    packTokens(x.address, eight, numTokens, numInputs, to, localScratch());
  }
  phaseBarrier();
  for (let begin = takeUnits(MC); begin < numOutputs; begin = takeUnits(MC)) {
    const end = min<i32>(numOutputs, begin + MC);
    for (let t = 0; t < numTokens; t += NC) gemmPanel(begin, end, t, min<i32>(numTokens, t + NC));
  }
}

/** Rows `[begin, end)` times tokens `[first, last)`. */
function gemmPanel(begin: i32, end: i32, first: i32, last: i32): void {
  const stride = (<usize>numInputs) << 5;
  beginF32Panel(localScratch(), dtype, end - begin, (last - first + 7) >> 3);
  for (let o = begin; o < end; o++) listRow(o - begin, weight.address + <usize>o * rowBytes);
  multiplyEights(numInputs, sharedScratch() + <usize>(first >> 3) * stride, stride);
  for (let o = begin; o < end; o += 4) {
    for (let t = first; t < last; t++) storeFour(f32PanelSums(o - begin, t - first), o, end, t);
  }
}

/** Stores the sums of rows `[o, o + 4)` below `end`, plus their bias. */
function storeFour(sums: v128, o: i32, end: i32, t: i32): void {
  const to = y.address + ((<usize>t * <usize>numOutputs + <usize>o) << 2);
  const hasBias = bias.isPresent;
  store<f32>(to, f32x4.extract_lane(sums, 0) + (hasBias ? biasOf(o) : <f32>0));
  if (o + 1 < end) store<f32>(to, f32x4.extract_lane(sums, 1) + (hasBias ? biasOf(o + 1) : <f32>0), 4);
  if (o + 2 < end) store<f32>(to, f32x4.extract_lane(sums, 2) + (hasBias ? biasOf(o + 2) : <f32>0), 8);
  if (o + 3 < end) store<f32>(to, f32x4.extract_lane(sums, 3) + (hasBias ? biasOf(o + 3) : <f32>0), 12);
}

/** Rows for GEMV or a panel, in f32 or in int8, which takes no more. */
export function matmulLocalBytes(): u64 {
  return max<u64>(readableRowBytes(x.numInputs), f32PanelBytes(NC));
}

/** Tokens side by side by eight, as f32 or as 8-bit codes with their scales. */
export function matmulSharedBytes(): u64 {
  return ((<u64>((x.numTokens + 7) & ~7) * x.numInputs) << 2) + 256;
}
