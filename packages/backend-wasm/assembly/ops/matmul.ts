/**
 * Products with weight matrices, activations in f32. Tensors: x, weight, bias, y. Units: groups of output rows.
 * One to three tokens: dot products of four rows at a time. More: eight tokens side by side in registers, weights
 * decoded in panels of MC rows and KC columns.
 */
import { dots4F16 } from '../gemm/f16-dot';
import { F16, F32, bytesOf, decode } from '../quant/dequantize';
import { FLAG_INT8 } from '../runtime/layout.generated';
import { addressOf, dim, dtypeOf, hasFlag, isPresent, localScratch, sharedScratch } from '../runtime/record';
import { fma, sum4 } from '../simd/vector';
import { phaseBarrier, takeUnits } from '../runtime/threads';
import { gemm4x8 } from '../gemm/f32-gemm.generated';
import { matmulInt8 } from '../gemm/int8-matmul';

/** Rows of a panel. */
const MC: i32 = 32;
/** Columns of a panel: 64 KiB of weights, 16 KiB of activations. */
const KC: i32 = 512;
/** Tokens of one pass over the weights. */
const NC: i32 = 256;
/** Fewest tokens that go by tiles. */
const MIN_TILE_TOKENS: i32 = 4;

export function matmul(): void {
  if (hasFlag(FLAG_INT8)) {
    matmulInt8();
    return;
  }
  const numTokens = dim(0, 0);
  if (numTokens >= MIN_TILE_TOKENS) byTiles(numTokens);
  else byDots(numTokens);
}

function byDots(numTokens: i32): void {
  const numOutputs = dim(1, 0);
  const numInputs = dim(1, 1);
  const dtype = dtypeOf(1);
  const rowBytes = bytesOf(dtype, numInputs);
  const xBytes = (<usize>numInputs) << 2;
  const bias = isPresent(2) ? addressOf(2) : 0;
  const unit = numOutputs >= 1024 ? 64 : 16;
  for (let begin = takeUnits(unit); begin < numOutputs; begin = takeUnits(unit)) {
    // four runs of rows side by side: as streams they are read ahead from row to row
    const count = min<i32>(numOutputs - begin, unit);
    const run = (count + 3) >> 2;
    const last = begin + count - 1;
    for (let i = 0; i < run; i++) {
      // beyond the end the last row stands in; its results are those of that row
      const o0 = begin + i;
      const o1 = min<i32>(last, o0 + run);
      const o2 = min<i32>(last, o0 + 2 * run);
      const o3 = min<i32>(last, o0 + 3 * run);
      const w0 = rowAt(dtype, o0, 0, rowBytes, numInputs);
      const w1 = rowAt(dtype, o1, 1, rowBytes, numInputs);
      const w2 = rowAt(dtype, o2, 2, rowBytes, numInputs);
      const w3 = rowAt(dtype, o3, 3, rowBytes, numInputs);
      for (let t = 0; t < numTokens; t++) {
        const x = addressOf(0) + <usize>t * xBytes;
        let sums = dtype === F16 ? dots4F16(x, w0, w1, w2, w3, numInputs) : dots4(x, w0, w1, w2, w3, numInputs);
        if (bias !== 0) {
          const four = f32x4(biasOf(bias, o0), biasOf(bias, o1), biasOf(bias, o2), biasOf(bias, o3));
          sums = f32x4.add(sums, four);
        }
        const y = addressOf(3) + ((<usize>t * <usize>numOutputs) << 2);
        store<f32>(y + ((<usize>o0) << 2), f32x4.extract_lane(sums, 0));
        store<f32>(y + ((<usize>o1) << 2), f32x4.extract_lane(sums, 1));
        store<f32>(y + ((<usize>o2) << 2), f32x4.extract_lane(sums, 2));
        store<f32>(y + ((<usize>o3) << 2), f32x4.extract_lane(sums, 3));
      }
    }
  }
}

function biasOf(bias: usize, o: i32): f32 {
  return load<f32>(bias + ((<usize>o) << 2));
}

/** The rows from `begin` on, three at most, in f32: what is left of weights that are packed by four. */
export function lastRows(begin: i32): void {
  const numOutputs = dim(1, 0);
  const numInputs = dim(1, 1);
  const dtype = dtypeOf(1);
  const bias = isPresent(2) ? addressOf(2) : 0;
  for (let o = begin; o < numOutputs; o++) {
    const row = rowAt(dtype, o, 0, bytesOf(dtype, numInputs), numInputs);
    for (let t = 0; t < dim(0, 0); t++) {
      const sums = dots4(addressOf(0) + ((<usize>t * <usize>numInputs) << 2), row, row, row, row, numInputs);
      storeRow(sums, o, o + 1, t, bias, numOutputs);
    }
  }
}

/** Address of a row that `dots4` can read: f32 and f16 as they are, everything else decoded into slot `slot`. */
function rowAt(dtype: i32, row: i32, slot: i32, rowBytes: usize, numInputs: i32): usize {
  const at = addressOf(1) + <usize>row * rowBytes;
  if (dtype === F32 || dtype === F16) return at;
  const to = localScratch() + <usize>slot * ((<usize>numInputs) << 2);
  decodeRow(dtype, row, rowBytes, numInputs, 0, numInputs, to);
  return to;
}

/** Decodes columns `[begin, begin + count)` of a row. */
function decodeRow(dtype: i32, row: i32, rowBytes: usize, numInputs: i32, begin: i32, count: i32, to: usize): void {
  decode(dtype, addressOf(1) + <usize>row * rowBytes + bytesOf(dtype, begin), to, count);
}

function storeRow(sums: v128, o: i32, end: i32, t: i32, bias: usize, numOutputs: i32): void {
  const y = addressOf(3) + ((<usize>t * <usize>numOutputs + <usize>o) << 2);
  const at: usize = bias === 0 ? 0 : bias + ((<usize>o) << 2);
  store<f32>(y, f32x4.extract_lane(sums, 0) + (bias === 0 ? <f32>0 : load<f32>(at)));
  if (o + 1 < end) store<f32>(y, f32x4.extract_lane(sums, 1) + (bias === 0 ? <f32>0 : load<f32>(at, 4)), 4);
  if (o + 2 < end) store<f32>(y, f32x4.extract_lane(sums, 2) + (bias === 0 ? <f32>0 : load<f32>(at, 8)), 8);
  if (o + 3 < end) store<f32>(y, f32x4.extract_lane(sums, 3) + (bias === 0 ? <f32>0 : load<f32>(at, 12)), 12);
}

/** Dot products of one vector with four rows. */
export function dots4(x: usize, w0: usize, w1: usize, w2: usize, w3: usize, count: i32): v128 {
  let a = f32x4.splat(0);
  let b = a;
  let c = a;
  let d = a;
  let e = a;
  let f = a;
  let g = a;
  let h = a;
  let i = count;
  for (; i >= 8; i -= 8) {
    let v = v128.load(x);
    a = fma(v, v128.load(w0), a);
    b = fma(v, v128.load(w1), b);
    c = fma(v, v128.load(w2), c);
    d = fma(v, v128.load(w3), d);
    v = v128.load(x, 16);
    e = fma(v, v128.load(w0, 16), e);
    f = fma(v, v128.load(w1, 16), f);
    g = fma(v, v128.load(w2, 16), g);
    h = fma(v, v128.load(w3, 16), h);
    x += 32;
    w0 += 32;
    w1 += 32;
    w2 += 32;
    w3 += 32;
  }
  let s0 = sum4(f32x4.add(a, e));
  let s1 = sum4(f32x4.add(b, f));
  let s2 = sum4(f32x4.add(c, g));
  let s3 = sum4(f32x4.add(d, h));
  for (; i > 0; i--, x += 4, w0 += 4, w1 += 4, w2 += 4, w3 += 4) {
    const v = load<f32>(x);
    s0 += v * load<f32>(w0);
    s1 += v * load<f32>(w1);
    s2 += v * load<f32>(w2);
    s3 += v * load<f32>(w3);
  }
  return f32x4(s0, s1, s2, s3);
}

/** Packs tokens `[begin, begin + 8)` of x as `[numInputs, 8]`, zeros beyond the last token. */
export function packTokens(x: usize, to: usize, begin: i32, numTokens: i32, numInputs: i32): void {
  const rowBytes = (<usize>numInputs) << 2;
  for (let lane = 0; lane < 8; lane++) {
    let out = to + ((<usize>lane) << 2);
    if (begin + lane >= numTokens) {
      for (let k = 0; k < numInputs; k++, out += 32) store<f32>(out, 0);
      continue;
    }
    let from = x + <usize>(begin + lane) * rowBytes;
    for (let k = 0; k < numInputs; k++, out += 32, from += 4) store<f32>(out, load<f32>(from));
  }
}

function byTiles(numTokens: i32): void {
  const numOutputs = dim(1, 0);
  const numInputs = dim(1, 1);
  const panels = sharedScratch();
  const panelBytes = (<usize>numInputs) << 5;
  const numPanels = (numTokens + 7) >> 3;
  for (let p = takeUnits(1); p < numPanels; p = takeUnits(1)) {
    packTokens(addressOf(0), panels + <usize>p * panelBytes, p << 3, numTokens, numInputs);
  }
  phaseBarrier();
  for (let begin = takeUnits(MC); begin < numOutputs; begin = takeUnits(MC)) {
    for (let t = 0; t < numTokens; t += NC) {
      tileBlock(begin, min<i32>(numOutputs, begin + MC), t, min<i32>(numTokens, t + NC), panels, panelBytes);
    }
  }
}

/** Rows `[begin, end)` times tokens `[first, last)`. */
function tileBlock(begin: i32, end: i32, first: i32, last: i32, panels: usize, panelBytes: usize): void {
  const numOutputs = dim(1, 0);
  const numInputs = dim(1, 1);
  const dtype = dtypeOf(1);
  const rowBytes = bytesOf(dtype, numInputs);
  const firstPanel = first >> 3;
  const numPanels = ((last + 7) >> 3) - firstPanel;
  const numRows = end - begin;
  const decoded = localScratch();
  const sums = decoded + <usize>(MC * KC * 4);
  for (let k = 0; k < numInputs; k += KC) {
    const depth = min<i32>(KC, numInputs - k);
    let weights: usize;
    let stride: usize;
    if (dtype === F32) {
      weights = addressOf(1) + <usize>begin * rowBytes + ((<usize>k) << 2);
      stride = rowBytes;
    } else {
      weights = decoded;
      stride = (<usize>KC) << 2;
      for (let r = 0; r < numRows; r++) {
        decodeRow(dtype, begin + r, rowBytes, numInputs, k, depth, decoded + <usize>r * stride);
      }
    }
    for (let p = 0; p < numPanels; p++) {
      const x = panels + <usize>(firstPanel + p) * panelBytes + ((<usize>k) << 5);
      for (let r = 0; r < numRows; r += 4) {
        const c = sums + ((<usize>((r >> 2) * numPanels + p)) << 7);
        const w0 = weights + <usize>r * stride;
        const w1 = weights + <usize>min<i32>(r + 1, numRows - 1) * stride;
        const w2 = weights + <usize>min<i32>(r + 2, numRows - 1) * stride;
        const w3 = weights + <usize>min<i32>(r + 3, numRows - 1) * stride;
        gemm4x8(c, w0, w1, w2, w3, x, depth, k > 0);
      }
    }
  }
  const bias = isPresent(2) ? addressOf(2) : 0;
  for (let r = 0; r < numRows; r += 4) {
    for (let t = first; t < last; t++) {
      const lane = sums + ((<usize>((r >> 2) * numPanels + ((t - first) >> 3))) << 7) + ((<usize>(t & 7)) << 2);
      const four = f32x4(load<f32>(lane), load<f32>(lane, 32), load<f32>(lane, 64), load<f32>(lane, 96));
      storeRow(four, begin + r, end, t, bias, numOutputs);
    }
  }
}
