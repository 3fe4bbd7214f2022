/**
 * f32 matmul with weight rows at arbitrary addresses. A few tokens: GEMV, four rows at a time. More (see `usesGemm`):
 * blocked GEMM, where panels of MC rows and KC columns are dequantized once for all tokens, which are packed eight side by side.
 */
import { F16, F32, bytesOf, dequantize } from '../quant/dequantize';
import { isInvariant, sharedScratch, usesGemm } from '../runtime/record';
import { phaseBarrier, nextItems } from '../runtime/threads';
import { storeColumns } from '../simd/transpose';
import { gemm4x8 } from './f32-gemm.generated';
import { gemv4x1, gemv4x1InOrder, gemv4x3, gemvF16, gemvF16x2, gemvF16x4 } from './gemv.generated';
import { floatsOf, storeOutput, storeOutputs } from './tokens';

/** Rows per panel. */
export const MC: i32 = 32;
/** Columns per panel: 64 KiB of weights, 16 KiB of activations. */
const KC: i32 = 512;
/** Tokens per pass over the weights. */
const NC: i32 = 256;
/** Bytes from one dequantized row to the next. */
const ROW_BYTES: usize = (<usize>KC) << 2;

// scratch: up to 64 addresses, sums of GEMV of four tokens; its rows, or a panel, sums `[row / 4][token / 8][4][8]`, eight packed tokens
const LIST_BYTES: usize = 256;
const ROWS: usize = 320;
const SUMS: usize = ROWS + <usize>MC * ROW_BYTES;
const PACKED: usize = SUMS + <usize>(MC * NC * 4);
const END: usize = PACKED + <usize>(KC * 32);

let scratch: usize = 0;
let dtype: i32 = 0;
let numInputs: i32 = 0;
/** Range of outputs whose rows are in the list. */
let begin: i32 = 0;
let end: i32 = 0;

/** Starts the list of rows for outputs `[first, last)` in the scratch at `at`. */
export function beginRows(at: usize, weightType: i32, numColumns: i32, first: i32, last: i32): void {
  scratch = at;
  dtype = weightType;
  numInputs = numColumns;
  begin = first;
  end = last;
}

export function setRowAddress(o: i32, at: usize): void {
  store<u32>(scratch + ((<usize>(o - begin)) << 2), <u32>at);
}

/** Lists the rows of a contiguous matrix; the row for output 0 is at `weight`. */
export function setRowAddresses(weight: usize): void {
  const rowBytes = bytesOf(dtype, numInputs);
  for (let o = begin; o < end; o++) setRowAddress(o, weight + <usize>o * rowBytes);
}

function rowFor(o: i32): usize {
  return load<u32>(scratch + ((<usize>(min<i32>(o, end - 1) - begin)) << 2));
}

/** The row for output `o` in a form that GEMV reads: f32 in place, f16 too for few tokens, anything else dequantized. */
function readableRow(o: i32, slot: usize, isFew: bool): usize {
  if (dtype === F32 || (dtype === F16 && isFew)) return rowFor(o);
  const to = scratch + ROWS + slot * ((<usize>numInputs) << 2);
  dequantize(dtype, rowFor(o), to, numInputs);
  return to;
}

/** GEMV of tokens `[first, last)`, four consecutive rows at a time. */
export function multiplyFew(first: i32, last: i32): void {
  for (let o = begin; o < end && first < last; o += 4) multiplyFour(o, 1, first, last);
}

/** The same with one row from each of four runs of rows: the hardware prefetches each run as a stream, across rows. */
export function multiplyRuns(first: i32, last: i32): void {
  const run = (end - begin + 3) >> 2;
  for (let o = begin; o < begin + run && first < last; o++) multiplyFour(o, run, first, last);
}

function multiplyFour(o: i32, run: i32, first: i32, last: i32): void {
  const isFew = last - first <= (dtype === F16 ? 4 : 1);
  const w0 = readableRow(o, 0, isFew);
  const w1 = readableRow(o + run, 1, isFew);
  const w2 = readableRow(o + 2 * run, 2, isFew);
  const w3 = readableRow(o + 3 * run, 3, isFew);
  let at = scratch + LIST_BYTES;
  if (isFew && dtype === F16) multiplyHalves(first, last, w0, w1, w2, w3, at);
  else if (isFew && isInvariant(1)) gemv4x1InOrder(floatsOf(first), w0, w1, w2, w3, numInputs, at);
  else if (isFew) gemv4x1(floatsOf(first), w0, w1, w2, w3, numInputs, at); // more chains hide the latency of multiply-adds
  for (let token = first; token < last; token++) {
    if (!isFew && (token - first) % 3 === 0) {
      const x1 = floatsOf(min<i32>(token + 1, last - 1));
      const x2 = floatsOf(min<i32>(token + 2, last - 1));
      gemv4x3(floatsOf(token), x1, x2, w0, w1, w2, w3, numInputs, (at = scratch + LIST_BYTES));
    }
    for (let row = o; row < o + 4 * run; row += run, at += 4) if (row < end) storeOutput(load<f32>(at), row, token);
  }
}

/** One to four tokens times four rows of f16, two rows at a time for several: eight sums stay in registers. */
function multiplyHalves(first: i32, last: i32, w0: usize, w1: usize, w2: usize, w3: usize, to: usize): void {
  const x0 = floatsOf(first);
  if (last - first === 1) return gemvF16(x0, w0, w1, w2, w3, numInputs, to);
  const x1 = floatsOf(first + 1);
  for (const end = to + 16; to < end; to += 8, w0 = w2, w1 = w3) {
    if (last - first === 2) gemvF16x2(x0, x1, w0, w1, numInputs, to);
    else gemvF16x4(x0, x1, floatsOf(first + 2), floatsOf(last - 1), w0, w1, numInputs, to);
  }
}

/** Columns `[k, k + depth)` of the row for output `o`; `k` is a multiple of KC. */
function panelRow(o: i32, k: i32): usize {
  if (dtype === F32) return rowFor(o) + ((<usize>k) << 2);
  return scratch + ROWS + <usize>(min<i32>(o, end - 1) - begin) * ROW_BYTES;
}

/**
 * GEMM of tokens `[first, last)`, at most NC. They are at `packed`, as `packTokens` packs them, `stride` bytes for every
 * eight tokens; if `packed` is 0, they are packed here.
 */
export function multiplyPanel(first: i32, last: i32, packed: usize, stride: usize): void {
  const numEights = (last - first + 7) >> 3;
  for (let k = 0; k < numInputs; k += KC) {
    const depth = min<i32>(KC, numInputs - k);
    if (dtype !== F32) {
      for (let o = begin; o < end; o++) dequantize(dtype, rowFor(o) + bytesOf(dtype, k), panelRow(o, k), depth);
    }
    for (let eight = 0; eight < numEights; eight++) {
      let x = packed + <usize>eight * stride + ((<usize>k) << 5);
      if (packed === 0) {
        x = scratch + PACKED;
        packEight(first + (eight << 3), last, k, depth, x);
      }
      for (let o = begin; o < end; o += 4) {
        const c = scratch + SUMS + ((<usize>(((o - begin) >> 2) * numEights + eight)) << 7);
        gemm4x8(c, panelRow(o, k), panelRow(o + 1, k), panelRow(o + 2, k), panelRow(o + 3, k), x, depth, k > 0);
      }
    }
  }
  for (let o = begin; o < end; o += 4) {
    const row = scratch + SUMS + ((<usize>(((o - begin) >> 2) * numEights)) << 7);
    for (let token = first; token < last; token++) {
      const at = row + ((<usize>((token - first) >> 3)) << 7) + ((<usize>((token - first) & 7)) << 2);
      const sums = f32x4(load<f32>(at), load<f32>(at, 32), load<f32>(at, 64), load<f32>(at, 96));
      storeOutputs(sums, o, end, token);
    }
  }
}

/** Packs columns `[k, k + depth)` of eight tokens as `[depth][8]`; the last token stands in for those beyond it. */
function packEight(token: i32, last: i32, k: i32, depth: i32, to: usize): void {
  const offset = (<usize>k) << 2;
  for (let half = 0; half < 2; half++, token += 4, to += 16) {
    let x0 = floatsOf(min<i32>(token, last - 1)) + offset;
    let x1 = floatsOf(min<i32>(token + 1, last - 1)) + offset;
    let x2 = floatsOf(min<i32>(token + 2, last - 1)) + offset;
    let x3 = floatsOf(min<i32>(token + 3, last - 1)) + offset;
    let out = to;
    let i = depth;
    for (; i >= 4; i -= 4, x0 += 16, x1 += 16, x2 += 16, x3 += 16, out += 128) {
      storeColumns(v128.load(x0), v128.load(x1), v128.load(x2), v128.load(x3), out, 32, 64);
    }
    for (; i > 0; i--, x0 += 4, x1 += 4, x2 += 4, x3 += 4, out += 32) {
      v128.store(out, f32x4(load<f32>(x0), load<f32>(x1), load<f32>(x2), load<f32>(x3)));
    }
  }
}

/** Packs all tokens as `[token / 8][column][8]` in the shared scratch if panels pay off. Work items: eight tokens each. */
export function packTokens(numTokens: i32, numColumns: i32): void {
  if (!usesGemm(numTokens)) return;
  const numEights = (numTokens + 7) >> 3;
  for (let eight = nextItems(1); eight < numEights; eight = nextItems(1)) {
    const to = sharedScratch() + <usize>eight * ((<usize>numColumns) << 5);
    packEight(eight << 3, numTokens, 0, numColumns, to);
  }
  phaseBarrier();
}

/** GEMM of all tokens, which `packTokens` has packed. */
export function multiplyMany(numTokens: i32): void {
  const stride = (<usize>numInputs) << 5;
  for (let t = 0; t < numTokens; t += NC) {
    multiplyPanel(t, min<i32>(numTokens, t + NC), sharedScratch() + <usize>(t >> 3) * stride, stride);
  }
}

/** Scratch that each thread needs at the address passed to `beginRows`. */
export function rowsBytes(numColumns: i32): u64 {
  return max<u64>(<u64>ROWS + ((<u64>numColumns) << 4), <u64>END);
}

/** Shared scratch that `packTokens` needs; 8-bit codes and their metas take no more. */
export function packedBytes(numTokens: i32, numColumns: i32): u64 {
  return ((<u64>((numTokens + 7) & ~7) * numColumns) << 2) + 256;
}
