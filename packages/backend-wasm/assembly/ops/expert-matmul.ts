/**
 * expert-matmul. Every thread sorts the (token, choice) pairs by expert in scratch of its own. Work items: runs of rows of an expert
 * that some pair chose, then experts without a slot, whose results are 0. A few pairs of an expert go through GEMV; more go in
 * panels that are dequantized or unpacked once for all of them.
 */
import { gemv4, readableRow, readableRowBytes } from '../gemm/f32-gemv';
import {
  beginF32Panel,
  f32PanelBytes,
  f32PanelSums,
  listRow,
  loadColumns,
  multiplyEight,
  packEight,
} from '../gemm/f32-panels';
import { beginPanel, KC, MC, multiplyPanel, panelSums, unpackRows } from '../gemm/int8-panels';
import { UNPACKED_BYTES } from '../gemm/int8-unpack';
import { addToken, beginTokens, qgemvRows } from '../gemm/qgemv';
import { GROUP } from '../gemm/repack';
import { ids, slots, weight, x, y } from '../operands/expert-matmul.generated';
import { bytesOf } from '../quant/dequantize';
import {
  codeBytesFor,
  codesFor,
  META_BYTES,
  metasAt,
  paddedTokens,
  quantizeTokens,
} from '../quant/quantize-activations';
import { FLAG_INT8, FLAG_REUSE } from '../runtime/layout.generated';
import { hasFlag, localScratch, sharedScratch } from '../runtime/record';
import { phaseBarrier, takeUnits } from '../runtime/threads';
import { storeUpTo4 } from '../simd/tail';

/** Rows of a unit when few pairs are computed: longer streams of weights. */
const MANY_ROWS: i32 = 64;
/** Maximum number of pairs that count as few. */
const FEW_PAIRS: i32 = 32;
/** Pairs of one pass over the weights. */
const NC: i32 = 64;
/** Fewest pairs of an expert that go through panels; streams of repacked rows need no unpacking, and pay longer. */
const MIN_PANEL_PAIRS: i32 = 4;
const MIN_PANEL_PAIRS_STREAMED: i32 = 6;

// of this op, set on each thread
let numInputs: i32 = 0;
let numOutputs: i32 = 0;
let dtype: i32 = 0;
let isInt8: bool = false;
let pairsPerRow: i32 = 1;
let starts: usize = 0; // where the pairs of each expert start in the order
let active: usize = 0; // chosen experts with a slot; from the end those without
let order: usize = 0; // pairs, those of an expert side by side
let work: usize = 0; // scratch behind the tables
let numExperts: i32 = 0;
let numAbsent: i32 = 0; // chosen experts without a slot

export function expertMatmul(): void {
  const numPairs = ids.numElements;
  numOutputs = weight.numOutputs;
  numInputs = weight.numInputs;
  dtype = weight.dtype;
  isInt8 = hasFlag(FLAG_INT8);
  pairsPerRow = x.rowsPerToken === 1 ? ids.k : 1;
  if (isInt8 && !hasFlag(FLAG_REUSE)) {
    quantizeTokens(x.address, numRowsOfX(), numInputs, sharedScratch());
    phaseBarrier();
  }
  const numActive = sortPairs(numPairs);
  const unitRows = numPairs <= FEW_PAIRS ? MANY_ROWS : MC;
  const perExpert = (numOutputs + unitRows - 1) / unitRows;
  const numUnits = numActive * perExpert;
  for (let unit = takeUnits(1); unit < numUnits + numAbsent; unit = takeUnits(1)) {
    if (unit >= numUnits) {
      clearExpert(<usize>load<u32>(active + ((<usize>(numExperts - 1 - unit + numUnits)) << 2)));
      continue;
    }
    const begin = (unit % perExpert) * unitRows;
    multiplyExpert(
      <usize>load<u32>(active + ((<usize>(unit / perExpert)) << 2)),
      begin,
      min<i32>(numOutputs, begin + unitRows),
    );
  }
}

function numRowsOfX(): i32 {
  return x.numTokens * x.rowsPerToken;
}

/** Rows `[begin, end)` of an expert times its pairs. */
function multiplyExpert(expert: usize, begin: i32, end: i32): void {
  const matrix = weight.address + <usize>slotOf(expert) * bytesOf(dtype, numInputs) * <usize>numOutputs;
  const first = load<i32>(starts + (expert << 2));
  const last = load<i32>(starts + (expert << 2), 4);
  const isStreamed = ASC_FEATURE_RELAXED_SIMD && isInt8;
  const minPairs = isStreamed ? MIN_PANEL_PAIRS_STREAMED : MIN_PANEL_PAIRS;
  if (last - first < minPairs) {
    if (isInt8) gemvInt8(matrix, begin, end, first, last);
    else gemv(matrix, begin, end, first, last);
    return;
  }
  for (let o = begin; o < end; o += MC) {
    const stop = min<i32>(end, o + MC);
    for (let p = first; p < last; p += NC) {
      const next = min<i32>(last, p + NC);
      if (isInt8) panelInt8(matrix, o, stop, p, next);
      else panel(matrix, o, stop, p, next);
    }
  }
}

/** Where an expert's matrix is among those in memory; negative: nowhere. */
function slotOf(expert: usize): i32 {
  return slots.isPresent ? load<i32>(slots.address + (expert << 2)) : <i32>expert;
}

/** The results of an expert without a slot. */
function clearExpert(expert: usize): void {
  const last = load<i32>(starts + (expert << 2), 4);
  for (let p = load<i32>(starts + (expert << 2)); p < last; p++) memory.fill(yAt(p), 0, (<usize>numOutputs) << 2);
}

/**
 * Counting sort: pairs of expert e are `order[starts[e], starts[e + 1])`, ascending. Returns how many chosen experts have a
 * slot; the list of the others, `numAbsent`, grows from its end.
 */
function sortPairs(numPairs: i32): i32 {
  numExperts = slots.isPresent ? slots.numExperts : weight.numSlots;
  starts = localScratch();
  active = starts + ((<usize>(numExperts + 1)) << 2);
  order = active + ((<usize>numExperts) << 2);
  work = (order + ((<usize>numPairs) << 2) + 63) & ~63;
  const chosen = ids.address;
  memory.fill(starts, 0, (<usize>(numExperts + 1)) << 2);
  for (let pair: usize = 0; pair < <usize>numPairs; pair++) {
    const count = starts + ((<usize>load<u32>(chosen + (pair << 2))) << 2);
    store<i32>(count, load<i32>(count, 4) + 1, 4);
  }
  const numActive = listExperts();
  // each start moves on as its pairs come; afterwards it is the start of the next expert
  for (let pair: usize = 0; pair < <usize>numPairs; pair++) {
    const at = starts + ((<usize>load<u32>(chosen + (pair << 2))) << 2);
    const place = load<i32>(at);
    store<u32>(order + ((<usize>place) << 2), <u32>pair);
    store<i32>(at, place + 1);
  }
  for (let expert = <usize>numExperts; expert > 0; expert--) {
    store<i32>(starts + (expert << 2), load<i32>(starts + ((expert - 1) << 2)));
  }
  store<i32>(starts, 0);
  return numActive;
}

/** Lists the chosen experts, and turns their counts into starts. */
function listExperts(): i32 {
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
  return x.address + rowAt(p) * ((<usize>numInputs) << 2);
}
function yAt(p: i32): usize {
  return y.address + <usize>pairAt(p) * ((<usize>numOutputs) << 2);
}
/** Codes and metas of the pair at place `p`. */
function codesAt(p: i32): usize {
  return codesFor(dtype, sharedScratch(), numRowsOfX(), numInputs) + rowAt(p) * codeBytesFor(dtype, numInputs);
}
function metasOf(p: i32): usize {
  return metasAt(sharedScratch(), numRowsOfX(), numInputs) + rowAt(p) * <usize>(numInputs >> 5) * META_BYTES;
}

/** Row `row` of an expert's matrix as `gemv4` reads it. */
function weightRow(matrix: usize, row: i32, slot: usize): usize {
  return readableRow(dtype, matrix + <usize>row * bytesOf(dtype, numInputs), slot, numInputs, work);
}

function gemv(matrix: usize, begin: i32, end: i32, first: i32, last: i32): void {
  for (let o = begin; o < end; o += 4) {
    const w0 = weightRow(matrix, o, 0);
    const w1 = weightRow(matrix, min<i32>(o + 1, end - 1), 1);
    const w2 = weightRow(matrix, min<i32>(o + 2, end - 1), 2);
    const w3 = weightRow(matrix, min<i32>(o + 3, end - 1), 3);
    for (let p = first; p < last; p++) {
      storeUpTo4(yAt(p) + ((<usize>o) << 2), gemv4(dtype, xAt(p), w0, w1, w2, w3, numInputs), end - o);
    }
  }
}

function gemvInt8(matrix: usize, begin: i32, end: i32, first: i32, last: i32): void {
  beginTokens(work);
  for (let p = first; p < last; p++) addToken(codesAt(p), metasOf(p), yAt(p));
  qgemvRows(dtype, matrix, begin, end, numInputs, 0);
}

function panel(matrix: usize, begin: i32, end: i32, first: i32, last: i32): void {
  const rowBytes = bytesOf(dtype, numInputs);
  const numEights = (last - first + 7) >> 3;
  const rows = beginF32Panel(work, dtype, end - begin, numEights);
  const eight = rows + 64;
  for (let o = begin; o < end; o++) listRow(o - begin, matrix + <usize>o * rowBytes);
  for (let k = 0; k < numInputs; k += KC) {
    const depth = min<i32>(KC, numInputs - k);
    loadColumns(k, depth);
    for (let i = 0; i < numEights; i++) {
      // beyond the last pair it stands in
      for (let lane = 0; lane < 8; lane++) {
        store<u32>(rows + ((<usize>lane) << 2), <u32>xAt(min<i32>(first + (i << 3) + lane, last - 1)));
      }
      packEight(rows, (<usize>k) << 2, depth, eight);
      multiplyEight(i, eight);
    }
  }
  for (let o = begin; o < end; o += 4) {
    for (let p = first; p < last; p++) {
      storeUpTo4(yAt(p) + ((<usize>o) << 2), f32PanelSums(o - begin, p - first), end - o);
    }
  }
}

function panelInt8(matrix: usize, begin: i32, end: i32, first: i32, last: i32): void {
  const groupBytes = bytesOf(dtype, numInputs) * GROUP;
  const numGroups = (end - begin) / GROUP;
  const padded = paddedTokens(last - first);
  const codes = beginPanel(work, dtype, end - begin, last - first);
  const metas = codes + <usize>padded * codeBytesFor(dtype, KC);
  for (let k = 0; k < numInputs; k += KC) {
    const block = k >> 5;
    const numBlocks = min<i32>(KC, numInputs - k) >> 5;
    for (let g = 0; g < numGroups; g++) {
      unpackRows(g, matrix + <usize>(begin / GROUP + g) * groupBytes, block, block + numBlocks);
    }
    gatherCodes(first, last, padded, block, numBlocks, codes, metas);
    multiplyPanel(numBlocks, codes, metas, padded);
  }
  for (let g = 0; g < numGroups; g++) {
    const offset = (<usize>(begin + g * GROUP)) << 2;
    for (let p = first; p < last; p++) v128.store(yAt(p) + offset, panelSums(g, p - first));
  }
}

/** Blocks `[block, block + numBlocks)` of the activations of pairs, as `[block][pair]`; beyond the last pair it stands in. */
function gatherCodes(first: i32, last: i32, padded: i32, block: i32, numBlocks: i32, codes: usize, metas: usize): void {
  const codeBytes = codeBytesFor(dtype, 32);
  for (let i = 0; i < padded; i++) {
    const p = min<i32>(first + i, last - 1);
    let from = codesAt(p) + <usize>block * codeBytes;
    let meta = metasOf(p) + <usize>block * META_BYTES;
    let at = <usize>i;
    for (let b = 0; b < numBlocks; b++, from += codeBytes, meta += META_BYTES, at += <usize>padded) {
      const to = codes + at * codeBytes;
      for (let v: usize = 0; v < codeBytes; v += 16) v128.store(to + v, v128.load(from + v));
      v128.store(metas + at * META_BYTES, v128.load(meta));
      v128.store(metas + at * META_BYTES, v128.load(meta, 16), 16);
    }
  }
}

/** Pairs by expert; then rows or a panel as f32 with eight tokens, or an unpacked panel with the codes of tokens. */
export function expertMatmulLocalBytes(): u64 {
  const experts = slots.isPresent ? slots.numExperts : weight.numSlots;
  const tables = ((<u64>(2 * experts + 1) + ids.numElements) << 2) + 128;
  const floats = readableRowBytes(weight.numInputs) + f32PanelBytes(NC) + KC * 32;
  const integers = <u64>((MC / GROUP) * (KC / 32)) * UNPACKED_BYTES + MC * NC * 4 + NC * KC * 3;
  return tables + max<u64>(floats, integers);
}

/** Activations as 8-bit codes. */
export function expertMatmulSharedBytes(): u64 {
  return ((<u64>x.numTokens * (x.rowsPerToken * x.numInputs)) << 2) + 256;
}
