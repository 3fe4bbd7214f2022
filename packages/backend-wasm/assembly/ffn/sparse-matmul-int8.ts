/**
 * Products with chosen rows of a matrix, activations as 8-bit integers. Units: runs of chosen rows. Up to three tokens: rows
 * of q8_0 and q4_0 as they lie in memory, those of k-quants interleaved by four first. More tokens: rows are interleaved and
 * expanded in panels of MC rows and KC columns, once for all tokens. Rows that cannot be interleaved are computed in f32.
 */
import { Q4_0, Q6_K, Q8_0, bytesOf } from '../quant/dequantize';
import { qgemvInt16 } from '../gemm/int16-dot';
import { qgemvGroup } from '../gemm/qgemv';
import { qgemmBlock } from '../gemm/qgemm';
import { UNPACKED_BYTES, unpackGroup, initialOf } from '../gemm/int8-unpack';
import { FLAG_REUSE } from '../runtime/layout.generated';
import { foursOf, packRecords, readsRecords } from './repack-neurons';
import { GROUP, hasSmallScales, packRows } from '../gemm/repack';
import {
  codeBytesFor,
  codesFor,
  META_BYTES,
  metasAt,
  paddedTokens,
  quantizeColumns,
  quantizeTokens,
  sideCodesAt,
} from '../quant/quantize-activations';
import { addressOf, dim, dtypeOf, hasFlag, localScratch, sharedScratch } from '../runtime/record';
import { fourSums, MANY_ROWS, gatherGemv } from './gather-gemv';
import { phaseBarrier, takeUnits } from '../runtime/threads';
import { chosenByDots, chosenCount, chosenRow, clearRest, storeChosen } from '../ops/sparse-matmul';

/** Rows of a panel. */
const MC: i32 = 32;
/** Columns of a panel: 16 blocks, two super-blocks. */
const KC: i32 = 512;
/** Tokens of one pass over the weights. */
const NC: i32 = 128;
/** Fewest tokens that go by panels. */
const MIN_PANEL_TOKENS: i32 = 4;

export function sparseMatmulInt8(): void {
  const numTokens = dim(0, 0);
  const numInputs = dim(0, 1);
  const dtype = dtypeOf(1);
  const isPanels = numTokens >= MIN_PANEL_TOKENS;
  if (!hasFlag(FLAG_REUSE)) {
    if (isPanels) quantizeColumns(addressOf(0), numTokens, numInputs, sharedScratch());
    else quantizeTokens(addressOf(0), numTokens, numInputs, sharedScratch());
    phaseBarrier();
  }
  const count = chosenCount();
  const isPlain = ASC_FEATURE_RELAXED_SIMD && !isPanels && (dtype === Q8_0 || dtype === Q4_0);
  const unit = isPanels || count >= 1024 ? MC : 16;
  let begin = takeUnits(unit);
  for (; begin < count; begin = takeUnits(unit)) {
    const end = min<i32>(count, begin + unit);
    if (isPlain) plainRows(begin, end, numTokens, numInputs, dtype);
    else if (!areSmall(begin, end, numInputs, dtype)) chosenByDots(begin, end);
    else if (isPanels) {
      for (let t = 0; t < numTokens; t += NC) {
        panels(begin, end, t, min<i32>(numTokens, t + NC), numTokens, numInputs, dtype);
      }
    } else interleavedRows(begin, end, numTokens, numInputs, dtype);
  }
  clearRest(begin, count, unit);
}

/** Whether the scales of chosen rows allow interleaving. */
function areSmall(begin: i32, end: i32, numInputs: i32, dtype: i32): bool {
  if (readsRecords()) return true;
  const rowBytes = bytesOf(dtype, numInputs);
  for (let j = begin; j < end; j++) if (!hasSmallScales(dtype, chosenRow(j, rowBytes), rowBytes)) return false;
  return true;
}

/** Rows of q8_0 and q4_0 as they are, at most MANY_ROWS. */
function plainRows(begin: i32, end: i32, numTokens: i32, numInputs: i32, dtype: i32): void {
  const rowBytes = bytesOf(dtype, numInputs);
  const numBlocks = numInputs >> 5;
  const codes = codesFor(dtype, sharedScratch(), numTokens, numInputs);
  const metas = metasAt(sharedScratch(), numTokens, numInputs);
  const metaRow = <usize>numBlocks * META_BYTES;
  const rows = localScratch();
  const sums = rows + ((<usize>MANY_ROWS) << 2);
  const numEights = (end - begin + 7) >> 3;
  for (let i = 0; i < numEights << 3; i++) {
    store<u32>(rows + ((<usize>i) << 2), <u32>chosenRow(min<i32>(begin + i, end - 1), rowBytes));
  }
  for (let t = 0; t < numTokens; t++) {
    const x = codes + <usize>t * codeBytesFor(dtype, numInputs);
    gatherGemv(dtype === Q4_0, rows, 0, numEights, x, metas + <usize>t * metaRow, numBlocks, sums);
    for (let j = begin; j < end; j += 4) {
      storeChosen(fourSums(sums, j - begin), j, end, t);
    }
  }
}

/** Interleaves columns `[k, k + depth)` of the four chosen rows from `j` on; beyond `end` the last row stands in. */
function packChosen(dtype: i32, j: i32, end: i32, k: i32, depth: i32, rowBytes: usize, to: usize): void {
  const a = columnsOf(dtype, j, k, rowBytes);
  const b = columnsOf(dtype, min<i32>(j + 1, end - 1), k, rowBytes);
  const c = columnsOf(dtype, min<i32>(j + 2, end - 1), k, rowBytes);
  const d = columnsOf(dtype, min<i32>(j + 3, end - 1), k, rowBytes);
  if (readsRecords()) packRecords(dtype === Q4_0, a, b, c, d, to, depth >> 5);
  else packRows(dtype, a, b, c, d, to, depth);
}

/** Where columns of the chosen row `j` begin, from column `k` on: a super-block, or four blocks of records. */
function columnsOf(dtype: i32, j: i32, k: i32, rowBytes: usize): usize {
  const at = chosenRow(j, rowBytes);
  return readsRecords() ? foursOf(dtype === Q4_0, at, dim(1, 1) >> 5, k >> 5) : at + bytesOf(dtype, k);
}

/** Few tokens, four rows at a time, interleaved first. */
function interleavedRows(begin: i32, end: i32, numTokens: i32, numInputs: i32, dtype: i32): void {
  const rowBytes = bytesOf(dtype, numInputs);
  const numBlocks = numInputs >> 5;
  const codes = codesFor(dtype, sharedScratch(), numTokens, numInputs);
  const wide = sideCodesAt(sharedScratch(), numTokens, numInputs);
  const metas = metasAt(sharedScratch(), numTokens, numInputs);
  const metaRow = <usize>numBlocks * META_BYTES;
  const group = localScratch();
  const expanded = (group + rowBytes * GROUP + 63) & ~63;
  for (let j = begin; j < end; j += GROUP) {
    packChosen(dtype, j, end, 0, numInputs, rowBytes, group);
    if (!ASC_FEATURE_RELAXED_SIMD) unpackGroup(dtype, group, 0, numBlocks, expanded);
    for (let t = 0; t < numTokens; t++) {
      const meta = metas + <usize>t * metaRow;
      const row = <usize>t * <usize>numInputs;
      const sums = ASC_FEATURE_RELAXED_SIMD
        ? qgemvGroup(dtype, group, numInputs, codes + <usize>t * codeBytesFor(dtype, numInputs), meta)
        : qgemvInt16(expanded, numBlocks, wide + (row << 1), meta, initialOf(dtype), dtype === Q6_K, f32x4.splat(0));
      storeChosen(sums, j, end, t);
    }
  }
}

/** The chosen rows `[begin, end)` times tokens `[first, last)`. */
function panels(begin: i32, end: i32, first: i32, last: i32, numTokens: i32, numInputs: i32, dtype: i32): void {
  const rowBytes = bytesOf(dtype, numInputs);
  const padded = paddedTokens(numTokens);
  const codes = codesFor(dtype, sharedScratch(), padded, numInputs);
  const codeBytes = codeBytesFor(dtype, 32);
  const wide = sideCodesAt(sharedScratch(), padded, numInputs);
  const metas = metasAt(sharedScratch(), padded, numInputs);
  const initial = initialOf(dtype);
  const numGroups = (end - begin + GROUP - 1) / GROUP;
  const panel = localScratch();
  const panelRow = <usize>(KC >> 5) * UNPACKED_BYTES;
  const group = panel + <usize>(MC / GROUP) * panelRow;
  // sums [group][token][4]; whole fours of tokens
  const sums = group + ((bytesOf(dtype, KC) * GROUP + 63) & ~63);
  const numColumns = paddedTokens(last - first);
  const sumRow = (<usize>numColumns) << 4;
  memory.fill(sums, 0, <usize>numGroups * sumRow);
  for (let k = 0; k < numInputs; k += KC) {
    const firstBlock = k >> 5;
    const depth = min<i32>(KC, numInputs - k);
    const numBlocks = depth >> 5;
    for (let g = 0; g < numGroups; g++) {
      packChosen(dtype, begin + g * GROUP, end, k, depth, rowBytes, group);
      unpackGroup(dtype, group, 0, numBlocks, panel + <usize>g * panelRow);
    }
    for (let block = 0; block < numBlocks; block++) {
      const at = <usize>((firstBlock + block) * padded + first);
      const meta = metas + at * META_BYTES;
      for (let g = 0; g < numGroups; g++) {
        const c = sums + <usize>g * sumRow;
        const p = panel + <usize>g * panelRow + <usize>block * UNPACKED_BYTES;
        if (ASC_FEATURE_RELAXED_SIMD) {
          qgemmBlock(dtype, p, codes + at * codeBytes, meta, initial, c, numColumns);
          continue;
        }
        for (let t: usize = 0; t < <usize>(last - first); t++) {
          const from = wide + ((at + t) << 6);
          const old = v128.load(c + (t << 4));
          v128.store(c + (t << 4), qgemvInt16(p, 1, from, meta + t * META_BYTES, initial, dtype === Q6_K, old));
        }
      }
    }
  }
  for (let g = 0; g < numGroups; g++) {
    for (let t = first; t < last; t++) {
      storeChosen(v128.load(sums + <usize>g * sumRow + ((<usize>(t - first)) << 4)), begin + g * GROUP, end, t);
    }
  }
}
