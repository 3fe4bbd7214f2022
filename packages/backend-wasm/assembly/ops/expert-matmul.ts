/**
 * Products with the weights of chosen experts. Tensors: x, ids, weight, slots, y. Every thread sorts the (token, choice)
 * pairs by expert in scratch of its own. Units: runs of rows of an expert that somebody chose, then experts without a slot,
 * whose results are 0. Few pairs of an expert go row by row; more go in panels of MC rows and KC columns that are decoded
 * or expanded once for all of them.
 */
import { bytesOf, decode, F16, F32, Q6_K } from '../quant/dequantize';
import { dots4F16 } from '../gemm/f16-dot';
import { qgemvInt16 } from '../gemm/int16-dot';
import { qgemvGroup, qgemvStreams, streamsOf } from '../gemm/qgemv';
import { qgemmBlock } from '../gemm/qgemm';
import { UNPACKED_BYTES, unpackGroup, initialOf } from '../gemm/int8-unpack';
import { FLAG_INT8, FLAG_REUSE } from '../runtime/layout.generated';
import { GROUP } from '../gemm/repack';
import {
  codeBytesFor,
  codesFor,
  META_BYTES,
  metasAt,
  quantizeTokens,
  sideCodesAt,
} from '../quant/quantize-activations';
import { addressOf, dim, dtypeOf, hasFlag, isPresent, localScratch, sharedScratch } from '../runtime/record';
import { phaseBarrier, takeUnits } from '../runtime/threads';
import { gemm4x8 } from '../gemm/f32-gemm.generated';
import { dots4 } from './matmul';

/** Rows of a panel. */
const MC: i32 = 32;
/** Rows of a unit when few pairs are computed: longer streams of weights. */
const MANY_ROWS: i32 = 64;
/** Most pairs that count as few. */
const FEW_PAIRS: i32 = 32;
/** Columns of a panel. */
const KC: i32 = 512;
/** Pairs of one pass over the weights. */
const NC: i32 = 64;
/** Fewest pairs of an expert that go by panels; packed rows need no expanding, and pay longer. */
const MIN_PANEL_PAIRS: i32 = 4;
const MIN_PANEL_PAIRS_PACKED: i32 = 6;

// of the record, set by `expertMatmul` on each thread
let numInputs: i32 = 0;
let numOutputs: i32 = 0;
let dtype: i32 = 0;
let pairsPerRow: i32 = 1;
let order: usize = 0; // pairs, those of an expert side by side
let work: usize = 0; // scratch behind the tables
let numAbsent: i32 = 0; // chosen experts without a slot

export function expertMatmul(): void {
  const numPairs = dim(1, 0) * dim(1, 1);
  const numExperts = isPresent(3) ? dim(3, 0) : dim(2, 0);
  numOutputs = dim(2, 1);
  numInputs = dim(2, 2);
  dtype = dtypeOf(2);
  pairsPerRow = dim(0, 1) === 1 ? dim(1, 1) : 1;
  const isInt8 = hasFlag(FLAG_INT8);
  const numRows = dim(0, 0) * dim(0, 1);
  if (isInt8 && !hasFlag(FLAG_REUSE)) {
    quantizeTokens(addressOf(0), numRows, numInputs, sharedScratch());
    phaseBarrier();
  }
  const starts = localScratch();
  const active = starts + ((<usize>(numExperts + 1)) << 2);
  order = active + ((<usize>numExperts) << 2);
  work = (order + ((<usize>numPairs) << 2) + 63) & ~63;
  const numActive = sortPairs(starts, active, numPairs, numExperts);
  const matrixBytes = bytesOf(dtype, numInputs) * <usize>numOutputs;
  const unitRows = numPairs <= FEW_PAIRS ? MANY_ROWS : MC;
  const perExpert = (numOutputs + unitRows - 1) / unitRows;
  const isNarrow = ASC_FEATURE_RELAXED_SIMD && isInt8;
  const minPanelPairs = isNarrow ? MIN_PANEL_PAIRS_PACKED : MIN_PANEL_PAIRS;
  const numUnits = numActive * perExpert;
  for (let unit = takeUnits(1); unit < numUnits + numAbsent; unit = takeUnits(1)) {
    if (unit >= numUnits) {
      clearExpert(<usize>load<u32>(active + ((<usize>(numExperts - 1 - unit + numUnits)) << 2)), starts);
      continue;
    }
    const expert = <usize>load<u32>(active + ((<usize>(unit / perExpert)) << 2));
    const weight = addressOf(2) + <usize>slotOf(expert) * matrixBytes;
    const begin = (unit % perExpert) * unitRows;
    const end = min<i32>(numOutputs, begin + unitRows);
    const first = load<i32>(starts + (expert << 2));
    const last = load<i32>(starts + (expert << 2), 4);
    if (last - first >= minPanelPairs) panels(weight, begin, end, first, last, numRows, isInt8);
    else if (isNarrow) packedByRows(weight, begin, end, first, last, numRows);
    else if (!ASC_FEATURE_RELAXED_SIMD && isInt8) wideByRows(weight, begin, end, first, last, numRows);
    else byRows(weight, begin, end, first, last);
  }
}

function panels(weight: usize, begin: i32, end: i32, first: i32, last: i32, numRows: i32, isInt8: bool): void {
  for (let o = begin; o < end; o += MC) {
    const stop = min<i32>(end, o + MC);
    for (let p = first; p < last; p += NC) {
      const next = min<i32>(last, p + NC);
      if (isInt8) packedByPanels(weight, o, stop, p, next, numRows);
      else byPanels(weight, o, stop, p, next);
    }
  }
}

/** Where an expert's matrix is among those in memory; negative: nowhere. */
function slotOf(expert: usize): i32 {
  return isPresent(3) ? load<i32>(addressOf(3) + (expert << 2)) : <i32>expert;
}

/** The results of an expert without a slot. */
function clearExpert(expert: usize, starts: usize): void {
  const last = load<i32>(starts + (expert << 2), 4);
  for (let p = load<i32>(starts + (expert << 2)); p < last; p++) {
    const rowBytes = (<usize>numOutputs) << 2;
    memory.fill(addressOf(4) + <usize>pairAt(p) * rowBytes, 0, rowBytes);
  }
}

/**
 * Counting sort: pairs of expert e are `order[starts[e], starts[e + 1])`, ascending. Returns how many chosen experts have a
 * slot; the list of the others, `numAbsent`, grows from its end.
 */
function sortPairs(starts: usize, active: usize, numPairs: i32, numExperts: i32): i32 {
  const ids = addressOf(1);
  memory.fill(starts, 0, (<usize>(numExperts + 1)) << 2);
  for (let pair: usize = 0; pair < <usize>numPairs; pair++) {
    const count = starts + ((<usize>load<u32>(ids + (pair << 2))) << 2);
    store<i32>(count, load<i32>(count, 4) + 1, 4);
  }
  let numActive: usize = 0;
  numAbsent = 0;
  for (let expert: usize = 0; expert < <usize>numExperts; expert++) {
    const at = starts + (expert << 2);
    const count = load<i32>(at, 4);
    if (count > 0) {
      if (slotOf(expert) >= 0) store<u32>(active + (numActive++ << 2), <u32>expert);
      else store<u32>(active + ((<usize>(numExperts - ++numAbsent)) << 2), <u32>expert);
    }
    store<i32>(at, load<i32>(at) + count, 4);
  }
  // each start moves on as its pairs come; afterwards it is the start of the next expert
  for (let pair: usize = 0; pair < <usize>numPairs; pair++) {
    const at = starts + ((<usize>load<u32>(ids + (pair << 2))) << 2);
    const place = load<i32>(at);
    store<u32>(order + ((<usize>place) << 2), <u32>pair);
    store<i32>(at, place + 1);
  }
  for (let expert = <usize>numExperts; expert > 0; expert--) {
    store<i32>(starts + (expert << 2), load<i32>(starts + ((expert - 1) << 2)));
  }
  store<i32>(starts, 0);
  return <i32>numActive;
}

/** Pair at place `p` of the order. */
function pairAt(p: i32): i32 {
  return load<i32>(order + ((<usize>p) << 2));
}
/** Row of x of the pair at place `p`. */
function rowAt(p: i32): usize {
  return <usize>(pairAt(p) / pairsPerRow);
}
function xAt(p: i32): usize {
  return addressOf(0) + rowAt(p) * ((<usize>numInputs) << 2);
}

/** Stores the results of rows `[o, o + 4)` below `end`. */
function storeRows(sums: v128, o: i32, end: i32, p: i32): void {
  const y = addressOf(4) + ((<usize>pairAt(p) * <usize>numOutputs + <usize>o) << 2);
  if (o + 4 <= end) {
    v128.store(y, sums);
    return;
  }
  store<f32>(y, f32x4.extract_lane(sums, 0));
  if (o + 1 < end) store<f32>(y, f32x4.extract_lane(sums, 1), 4);
  if (o + 2 < end) store<f32>(y, f32x4.extract_lane(sums, 2), 8);
}

/** Address of a weight row as f32 or f16; others are decoded into slot `slot`. */
function weightRow(weight: usize, row: i32, slot: i32): usize {
  const at = weight + <usize>row * bytesOf(dtype, numInputs);
  if (dtype === F32 || dtype === F16) return at;
  const to = work + <usize>slot * ((<usize>numInputs) << 2);
  decode(dtype, at, to, numInputs);
  return to;
}

function byRows(weight: usize, begin: i32, end: i32, first: i32, last: i32): void {
  for (let o = begin; o < end; o += 4) {
    const w0 = weightRow(weight, o, 0);
    const w1 = weightRow(weight, min<i32>(o + 1, end - 1), 1);
    const w2 = weightRow(weight, min<i32>(o + 2, end - 1), 2);
    const w3 = weightRow(weight, min<i32>(o + 3, end - 1), 3);
    for (let p = first; p < last; p++) {
      const x = xAt(p);
      const sums = dtype === F16 ? dots4F16(x, w0, w1, w2, w3, numInputs) : dots4(x, w0, w1, w2, w3, numInputs);
      storeRows(sums, o, end, p);
    }
  }
}

/** Columns `[k, k + depth)` of eight pairs from `p` on as `[depth, 8]`; beyond `last` the last pair stands in. */
function packPairs(p: i32, last: i32, k: i32, depth: i32, to: usize): void {
  const offset = (<usize>k) << 2;
  for (let half = 0; half < 8; half += 4, to += 16) {
    let x0 = xAt(min<i32>(p + half, last - 1)) + offset;
    let x1 = xAt(min<i32>(p + half + 1, last - 1)) + offset;
    let x2 = xAt(min<i32>(p + half + 2, last - 1)) + offset;
    let x3 = xAt(min<i32>(p + half + 3, last - 1)) + offset;
    let out = to;
    let i = depth;
    for (; i >= 4; i -= 4, x0 += 16, x1 += 16, x2 += 16, x3 += 16, out += 128) {
      const a = v128.load(x0);
      const b = v128.load(x1);
      const c = v128.load(x2);
      const d = v128.load(x3);
      const ab = i8x16.shuffle(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
      const cd = i8x16.shuffle(c, d, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
      const ef = i8x16.shuffle(a, b, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
      const gh = i8x16.shuffle(c, d, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
      v128.store(out, i8x16.shuffle(ab, cd, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23));
      v128.store(out, i8x16.shuffle(ab, cd, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31), 32);
      v128.store(out, i8x16.shuffle(ef, gh, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23), 64);
      v128.store(out, i8x16.shuffle(ef, gh, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31), 96);
    }
    for (; i > 0; i--, x0 += 4, x1 += 4, x2 += 4, x3 += 4, out += 32) {
      v128.store(out, f32x4(load<f32>(x0), load<f32>(x1), load<f32>(x2), load<f32>(x3)));
    }
  }
}

function byPanels(weight: usize, begin: i32, end: i32, first: i32, last: i32): void {
  const rowBytes = bytesOf(dtype, numInputs);
  const numRows = end - begin;
  const numPanels = (last - first + 7) >> 3;
  const decoded = work;
  const panel = decoded + <usize>(MC * KC * 4);
  const sums = panel + <usize>(KC * 32); // [row / 4][panel][4][8]
  for (let k = 0; k < numInputs; k += KC) {
    const depth = min<i32>(KC, numInputs - k);
    let rows: usize;
    let stride: usize;
    if (dtype === F32) {
      rows = weight + <usize>begin * rowBytes + ((<usize>k) << 2);
      stride = rowBytes;
    } else {
      rows = decoded;
      stride = (<usize>KC) << 2;
      for (let r = 0; r < numRows; r++) {
        const from = weight + <usize>(begin + r) * rowBytes + bytesOf(dtype, k);
        decode(dtype, from, decoded + <usize>r * stride, depth);
      }
    }
    for (let p = 0; p < numPanels; p++) {
      packPairs(first + (p << 3), last, k, depth, panel);
      for (let r = 0; r < numRows; r += 4) {
        const c = sums + ((<usize>((r >> 2) * numPanels + p)) << 7);
        const w0 = rows + <usize>r * stride;
        const w1 = rows + <usize>min<i32>(r + 1, numRows - 1) * stride;
        const w2 = rows + <usize>min<i32>(r + 2, numRows - 1) * stride;
        const w3 = rows + <usize>min<i32>(r + 3, numRows - 1) * stride;
        gemm4x8(c, w0, w1, w2, w3, panel, depth, k > 0);
      }
    }
  }
  for (let r = 0; r < numRows; r += 4) {
    for (let p = first; p < last; p++) {
      const place = p - first;
      const at = sums + ((<usize>((r >> 2) * numPanels + (place >> 3))) << 7) + ((<usize>(place & 7)) << 2);
      const four = f32x4(load<f32>(at), load<f32>(at, 32), load<f32>(at, 64), load<f32>(at, 96));
      storeRows(four, begin + r, end, p);
    }
  }
}

/** Some runs of groups side by side, what is left over one group at a time. */
function packedByRows(weight: usize, begin: i32, end: i32, first: i32, last: i32, numRows: i32): void {
  const groupBytes = bytesOf(dtype, numInputs) * GROUP;
  const codes = codesFor(dtype, sharedScratch(), numRows, numInputs);
  const codeRow = codeBytesFor(dtype, numInputs);
  const metas = metasAt(sharedScratch(), numRows, numInputs);
  const metaRow = <usize>(numInputs >> 5) * META_BYTES;
  const numGroups = (end - begin) / GROUP;
  const streams = streamsOf(dtype);
  const run = numGroups / streams;
  const group = weight + <usize>(begin / GROUP) * groupBytes;
  for (let g = 0; g < run; g++) {
    const at = group + <usize>g * groupBytes;
    for (let p = first; p < last; p++) {
      const row = rowAt(p);
      const x = codes + row * codeRow;
      qgemvStreams(dtype, at, <usize>run * groupBytes, numInputs, x, metas + row * metaRow, work);
      for (let i = 0; i < streams; i++) {
        storeRows(v128.load(work + ((<usize>i) << 4)), begin + (i * run + g) * GROUP, end, p);
      }
    }
  }
  for (let g = run * streams; g < numGroups; g++) {
    for (let p = first; p < last; p++) {
      const row = rowAt(p);
      const x = codes + row * codeRow;
      const sums = qgemvGroup(dtype, group + <usize>g * groupBytes, numInputs, x, metas + row * metaRow);
      storeRows(sums, begin + g * GROUP, end, p);
    }
  }
}

/** The same with 16-bit products, in builds without relaxed SIMD. */
function wideByRows(weight: usize, begin: i32, end: i32, first: i32, last: i32, numRows: i32): void {
  const groupBytes = bytesOf(dtype, numInputs) * GROUP;
  const wide = sideCodesAt(sharedScratch(), numRows, numInputs);
  const metas = metasAt(sharedScratch(), numRows, numInputs);
  const numBlocks = numInputs >> 5;
  for (let o = begin; o < end; o += GROUP) {
    unpackGroup(dtype, weight + <usize>(o / GROUP) * groupBytes, 0, numBlocks, work);
    for (let p = first; p < last; p++) {
      const row = rowAt(p);
      const from = wide + ((row * <usize>numInputs) << 1);
      const meta = metas + row * <usize>numBlocks * META_BYTES;
      const sums = qgemvInt16(work, numBlocks, from, meta, initialOf(dtype), dtype === Q6_K, f32x4.splat(0));
      storeRows(sums, o, end, p);
    }
  }
}

function packedByPanels(weight: usize, begin: i32, end: i32, first: i32, last: i32, numRows: i32): void {
  const groupBytes = bytesOf(dtype, numInputs) * GROUP;
  const codes = codesFor(dtype, sharedScratch(), numRows, numInputs);
  const codeBytes = codeBytesFor(dtype, 32);
  const wide = sideCodesAt(sharedScratch(), numRows, numInputs);
  const metas = metasAt(sharedScratch(), numRows, numInputs);
  const metaRow = <usize>(numInputs >> 5) * META_BYTES;
  const initial = initialOf(dtype);
  const halves = dtype === Q6_K;
  const numGroups = (end - begin) / GROUP;
  const numWhole = (last - first + 3) & ~3; // beyond the last pair it stands in for others
  const panel = work;
  const panelRow = <usize>(KC >> 5) * UNPACKED_BYTES;
  const sums = panel + <usize>(MC / GROUP) * panelRow; // [group][pair][4]
  const sumRow = (<usize>numWhole) << 4;
  const ownCodes = sums + <usize>(MC / GROUP) * ((<usize>NC) << 4); // [block][pair]
  const ownMetas = ownCodes + codeBytesFor(dtype, NC * KC);
  memory.fill(sums, 0, <usize>numGroups * sumRow);
  for (let k = 0; k < numInputs; k += KC) {
    const firstBlock = k >> 5;
    const numBlocks = min<i32>(KC, numInputs - k) >> 5;
    for (let g = 0; g < numGroups; g++) {
      const group = weight + <usize>(begin / GROUP + g) * groupBytes;
      unpackGroup(dtype, group, firstBlock, firstBlock + numBlocks, panel + <usize>g * panelRow);
    }
    if (ASC_FEATURE_RELAXED_SIMD) {
      for (let i = 0; i < numWhole; i++) {
        const row = rowAt(min<i32>(first + i, last - 1));
        let from = codes + (row * <usize>(numInputs >> 5) + <usize>firstBlock) * codeBytes;
        let meta = metas + row * metaRow + <usize>firstBlock * META_BYTES;
        for (let block = 0; block < numBlocks; block++, from += codeBytes, meta += META_BYTES) {
          const at = <usize>(block * numWhole + i);
          const to = ownCodes + at * codeBytes;
          for (let v: usize = 0; v < codeBytes; v += 16) v128.store(to + v, v128.load(from + v));
          v128.store(ownMetas + at * META_BYTES, v128.load(meta));
          v128.store(ownMetas + at * META_BYTES, v128.load(meta, 16), 16);
        }
      }
    }
    for (let block = 0; block < numBlocks; block++) {
      const at = <usize>(block * numWhole);
      for (let g = 0; g < numGroups; g++) {
        const rows = panel + <usize>g * panelRow + <usize>block * UNPACKED_BYTES;
        const c = sums + <usize>g * sumRow;
        if (ASC_FEATURE_RELAXED_SIMD) {
          qgemmBlock(dtype, rows, ownCodes + at * codeBytes, ownMetas + at * META_BYTES, initial, c, numWhole);
          continue;
        }
        for (let p = first; p < last; p++) {
          const sum = c + ((<usize>(p - first)) << 4);
          const row = rowAt(p);
          const from = wide + ((row * <usize>numInputs + <usize>(k + (block << 5))) << 1);
          const meta = metas + row * metaRow + <usize>(firstBlock + block) * META_BYTES;
          v128.store(sum, qgemvInt16(rows, 1, from, meta, initial, halves, v128.load(sum)));
        }
      }
    }
  }
  for (let g = 0; g < numGroups; g++) {
    for (let p = first; p < last; p++) {
      const at = sums + <usize>g * sumRow + ((<usize>(p - first)) << 4);
      storeRows(v128.load(at), begin + g * GROUP, end, p);
    }
  }
}
