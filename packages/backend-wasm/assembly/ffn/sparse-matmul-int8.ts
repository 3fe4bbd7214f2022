/**
 * sparse-matmul with 8-bit activations. Work items: runs of active rows. Up to three tokens: gather-GEMV over rows of q8_0 and
 * q4_0 in place; rows of k-quants are interleaved in groups of four first. More tokens: rows are interleaved and unpacked in
 * panels of MC rows and KC columns, once for all tokens. Rows that cannot be interleaved are computed in f32.
 */
import { multiplyFew } from '../gemm/f32-panels';
import { beginPanel, KC, MC, multiplyPanel, panelBytes, setColumns, storePanel, unpackRows } from '../gemm/int8-panels';
import { unpackGroup } from '../gemm/unpacked-groups';
import { qgemvGroup, qgemvUnpacked } from '../gemm/qgemv';
import { hasSmallScales, interleaveRows } from '../gemm/repack';
import { codesOf, metasOf, setCodes, storeOutputs } from '../gemm/tokens';
import { Q4_0, Q8_0, Q8_0_BLOCK_BYTES, bytesOf } from '../quant/dequantize';
import * as activations from '../quant/quantize-activations';
import { FLAG_REUSE, MIN_PANEL_TOKENS, GROUP_SIZE, META_BYTES, UNPACKED_BYTES } from '../runtime/layout.generated';
import { weight, x } from '../operands/sparse-matmul.generated';
import { hasFlag, sharedScratch } from '../runtime/record';
import { phaseBarrier, nextItems } from '../runtime/threads';
import { activeCount, activeRow, activeScratch, clearRest, gatherBias, selectActive } from './active-rows';
import { fourSums, gatherGemv, MANY_ROWS } from './gather-gemv';
import { foursOf, interleaveRepacked, readsRepacked } from './repack-neurons';

/** Tokens per pass over the weights. */
const NC: i32 = 128;

// of the current op, set by each thread
let numTokens: i32 = 0;
let numInputs: i32 = 0;
let dtype: i32 = 0;
let rowBytes: usize = 0;

export function sparseMatmulInt8(): void {
  numTokens = x.numTokens;
  numInputs = x.dim;
  dtype = weight.dtype;
  rowBytes = bytesOf(dtype, numInputs);
  const isPanels = numTokens >= MIN_PANEL_TOKENS;
  if (!hasFlag(FLAG_REUSE)) {
    if (isPanels) activations.quantizeColumns(x.address, numTokens, numInputs, sharedScratch());
    else activations.quantizeTokens(x.address, numTokens, numInputs, sharedScratch());
    phaseBarrier();
  }
  setCodes(dtype, sharedScratch(), numTokens, numInputs);
  const count = activeCount();
  const isPlain = ASC_FEATURE_RELAXED_SIMD && !isPanels && (dtype === Q8_0 || dtype === Q4_0);
  const unit = isPanels || count >= 1024 ? MC : 16;
  let begin = nextItems(unit);
  for (; begin < count; begin = nextItems(unit)) {
    const end = min<i32>(count, begin + unit);
    gatherBias(begin, end);
    if (isPlain) plainRows(begin, end);
    else if (!haveSmallScales(begin, end)) {
      selectActive(begin, end);
      multiplyFew(0, numTokens);
    } else if (!isPanels) interleavedRows(begin, end);
    else for (let t = 0; t < numTokens; t += NC) gemmPanel(begin, end, t, min<i32>(numTokens, t + NC));
  }
  clearRest(begin, count, unit);
}

/** Whether the scales of the active rows allow interleaving. */
function haveSmallScales(begin: i32, end: i32): bool {
  if (readsRepacked()) return true;
  for (let j = begin; j < end; j++) if (!hasSmallScales(dtype, activeRow(j, rowBytes), rowBytes)) return false;
  return true;
}

/** Gather-GEMV over at most MANY_ROWS rows of q8_0 or q4_0 in place. */
function plainRows(begin: i32, end: i32): void {
  const rows = activeScratch();
  const sums = rows + ((<usize>MANY_ROWS) << 2);
  const numEights = (end - begin + 7) >> 3;
  for (let i = 0; i < numEights << 3; i++) {
    store<u32>(rows + ((<usize>i) << 2), <u32>activeRow(min<i32>(begin + i, end - 1), rowBytes));
  }
  for (let t = 0; t < numTokens; t++) {
    gatherGemv(dtype === Q4_0, rows, 0, numEights, codesOf(t), metasOf(t), numInputs >> 5, sums);
    for (let j = begin; j < end; j += 4) storeOutputs(fourSums(sums, j - begin), j, end, t);
  }
}

/** Interleaves columns `[k, k + depth)` of the four active rows from `j` on; the last row stands in for those beyond `end`. */
function interleaveActive(j: i32, end: i32, k: i32, depth: i32, to: usize): void {
  const a = columnsOf(j, k);
  const b = columnsOf(min<i32>(j + 1, end - 1), k);
  const c = columnsOf(min<i32>(j + 2, end - 1), k);
  const d = columnsOf(min<i32>(j + 3, end - 1), k);
  if (readsRepacked()) interleaveRepacked(dtype === Q4_0, a, b, c, d, to, depth >> 5);
  else interleaveRows(dtype, a, b, c, d, to, depth);
}

/** Address of column `k` of the active row `j`, where a super-block or four repacked blocks start. */
function columnsOf(j: i32, k: i32): usize {
  const at = activeRow(j, rowBytes);
  return readsRepacked() ? foursOf(dtype === Q4_0, at, numInputs >> 5, k >> 5) : at + bytesOf(dtype, k);
}

/** qgemv for a few tokens, over groups of four rows that are interleaved first. */
function interleavedRows(begin: i32, end: i32): void {
  const group = activeScratch();
  const unpacked = (group + rowBytes * GROUP_SIZE + 63) & ~63;
  for (let j = begin; j < end; j += GROUP_SIZE) {
    interleaveActive(j, end, 0, numInputs, group);
    if (!ASC_FEATURE_RELAXED_SIMD) unpackGroup(dtype, group, 0, numInputs >> 5, unpacked);
    for (let t = 0; t < numTokens; t++) {
      const sums = ASC_FEATURE_RELAXED_SIMD
        ? qgemvGroup(dtype, group, numInputs, codesOf(t), metasOf(t))
        : qgemvUnpacked(dtype, unpacked, numInputs, codesOf(t), metasOf(t));
      storeOutputs(sums, j, end, t);
    }
  }
}

/** The active rows `[begin, end)` times tokens `[first, last)`. */
function gemmPanel(begin: i32, end: i32, first: i32, last: i32): void {
  const padded = activations.paddedTokens(numTokens);
  const codes = activations.codesFor(dtype, sharedScratch(), padded, numInputs);
  const metas = activations.metasAt(sharedScratch(), padded, numInputs);
  const numGroups = (end - begin + GROUP_SIZE - 1) / GROUP_SIZE;
  const group = (beginPanel(activeScratch(), dtype, end - begin, last - first) + 63) & ~63;
  const at = codes + <usize>first * activations.codeBytesFor(dtype, 32);
  setColumns(at, metas + <usize>first * META_BYTES, padded);
  for (let k = 0; k < numInputs; k += KC) {
    const depth = min<i32>(KC, numInputs - k);
    for (let g = 0; g < numGroups; g++) {
      interleaveActive(begin + g * GROUP_SIZE, end, k, depth, group);
      unpackRows(g, group, 0, depth >> 5);
    }
    multiplyPanel(k >> 5, depth >> 5);
  }
  storePanel(begin, end, first, last);
}

/** Scratch per thread: an interleaved group and its unpacked blocks, or a panel and a group that is yet to be unpacked. */
export function gatheredInt8Bytes(dtype: i32, width: i32): u64 {
  const numBlocks = <u64>((width + 255) & ~255) >> 5;
  const repacked = GROUP_SIZE * <u64>bytesOf(dtype, width) + 64 + numBlocks * UNPACKED_BYTES;
  // blocks of q8_0 are the largest
  const group = <u64>((GROUP_SIZE * KC) >> 5) * Q8_0_BLOCK_BYTES + 64;
  return max<u64>(repacked, panelBytes(NC) + group) + 64;
}
