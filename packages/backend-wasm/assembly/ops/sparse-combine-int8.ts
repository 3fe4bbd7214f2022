/**
 * Weighted sums of chosen rows of q8_0 and q4_0 with integer products; see neuron-blocks.ts. Units: runs of columns. Rows go
 * 32 at a time, block by block: 32 streams of memory. Up to three tokens on machines with a fit dot product: rows are
 * interleaved on the way into it. Otherwise a block is interleaved once for all tokens.
 */
import { Q4_0, Q8_0, bytesOf } from '../decode';
import { isExactForU8 } from '../dots8';
import {
  addBlockQ4,
  addBlockQ8,
  addMixed,
  addMixedWide,
  fetchScales,
  mixBlock,
  MIXED_BYTES,
  quantiseScales,
  RAW_BYTES,
  ROWS,
  STEP,
} from '../neuron-blocks';
import { addressOf, dim, dtypeOf, isPresent, localScratch } from '../record';
import { takeUnits, threads } from '../threads';
import { beginSums, columnsOfRow } from './sparse-combine';

/** Columns of a unit where a block serves all tokens. */
const MIXED_COLUMNS: i32 = 256;
/** Tokens of one pass over the weights. */
const NC: i32 = 64;
/** Fewest tokens that pay for interleaving first. */
const MIN_MIXED_TOKENS: i32 = 4;

// scratch: addresses of rows; coefficients of each token; scales of twice STEP blocks; codes; a block; sums
const TABLE_BYTES: usize = <usize>ROWS << 2;
const FACTORS: usize = TABLE_BYTES;
const RAW: usize = FACTORS + <usize>NC * TABLE_BYTES;
const RAW_STEP: usize = <usize>STEP * RAW_BYTES;
const CODES: usize = RAW + 2 * RAW_STEP;
const MIXED: usize = CODES + 64;
const SUMS: usize = MIXED + MIXED_BYTES;

export function sparseCombineInt8(): void {
  const numTokens = dim(0, 0);
  const numOutputs = dim(1, 1);
  const isNarrow = ASC_FEATURE_RELAXED_SIMD ? dtypeOf(1) != Q8_0 || isExactForU8() : false;
  const isMixed = !isNarrow || numTokens >= MIN_MIXED_TOKENS;
  const unit = isMixed ? MIXED_COLUMNS : unitOf(numOutputs);
  for (let begin = takeUnits(unit); begin < numOutputs; begin = takeUnits(unit)) {
    const columns = min<i32>(unit, numOutputs - begin);
    if (!isMixed) {
      fewTokens(begin, columns, numTokens);
      continue;
    }
    for (let t = 0; t < numTokens; t += NC) manyTokens(begin, columns, t, min<i32>(numTokens, t + NC), isNarrow);
  }
}

/** One unit for each thread, as long as memory likes them. */
function unitOf(numOutputs: i32): i32 {
  return max<i32>(256, (numOutputs / threads() + 31) & ~31);
}

/** Notes where the columns of the 32 rows from `j` on are; the last one stands in for those beyond it. */
function takeRows(table: usize, j: i32, count: i32, begin: i32): void {
  for (let k = 0; k < ROWS; k++) {
    store<u32>(table + (<usize>k << 2), <u32>columnsOfRow(min<i32>(j + k, count - 1), begin));
  }
}

/** Coefficients of the 32 rows from `j` on for token `t`, zeros beyond the last row. */
function takeFactors(to: usize, j: i32, count: i32, t: i32): void {
  const numRows = min<i32>(ROWS, count - j);
  const from = addressOf(0) + (<usize>t * <usize>dim(0, 1) + <usize>j << 2);
  memory.copy(to, from, <usize>numRows << 2);
  memory.fill(to + (<usize>numRows << 2), 0, <usize>(ROWS - numRows) << 2);
}

function fewTokens(begin: i32, columns: i32, numTokens: i32): void {
  const count = load<i32>(addressOf(3));
  const isQ4 = dtypeOf(1) == Q4_0;
  const blockBytes = bytesOf(dtypeOf(1), 32);
  const numBlocks = columns >> 5;
  const scratch = localScratch();
  const table = scratch;
  const codes = scratch + CODES;
  const y = addressOf(5) + (<usize>begin << 2);
  const yRow = <usize>dim(1, 1) << 2;
  for (let t = 0; t < numTokens; t++) beginSums(y + <usize>t * yRow, t, begin, columns);
  for (let j = 0; j < count; j += ROWS) {
    const numQuads = (min<i32>(ROWS, count - j) + 3) >> 2;
    takeRows(table, j, count, begin);
    for (let t = 0; t < numTokens; t++) takeFactors(scratch + FACTORS + <usize>t * TABLE_BYTES, j, count, t);
    // scales are fetched ahead: it takes time until what was stored in pieces can be loaded as a whole
    let raw = scratch + RAW;
    let nextRaw = raw + RAW_STEP;
    fetchScales(table, 0, blockBytes, min<i32>(STEP, numBlocks), raw);
    for (let begin = 0; begin < numBlocks; begin += STEP) {
      const end = min<i32>(numBlocks, begin + STEP);
      if (end < numBlocks) {
        fetchScales(table, <usize>end * blockBytes, blockBytes, min<i32>(STEP, numBlocks - end), nextRaw);
      }
      for (let block = begin; block < end; block++) {
        const offset = <usize>block * blockBytes;
        const scales = raw + <usize>(block - begin) * RAW_BYTES;
        for (let t: usize = 0; t < <usize>numTokens; t++) {
          const scale = quantiseScales(scales, scratch + FACTORS + t * TABLE_BYTES, codes);
          const to = y + t * yRow + (<usize>block << 7);
          if (isQ4) addBlockQ4(table, offset, numQuads, codes, scale, to);
          else addBlockQ8(table, offset, numQuads, codes, scale, to);
        }
      }
      const old = raw;
      raw = nextRaw;
      nextRaw = old;
    }
  }
}

/** Tokens `[first, last)`, sums as `[block][token][32]`. */
function manyTokens(begin: i32, columns: i32, first: i32, last: i32, isNarrow: bool): void {
  const count = load<i32>(addressOf(3));
  const isQ4 = dtypeOf(1) == Q4_0;
  const blockBytes = bytesOf(dtypeOf(1), 32);
  const numBlocks = columns >> 5;
  const numTokens = <usize>(last - first);
  const scratch = localScratch();
  const table = scratch;
  const raw = scratch + RAW;
  const codes = scratch + CODES;
  const mixed = scratch + MIXED;
  const sums = scratch + SUMS;
  const sumBytes = numTokens << 7; // of a block
  const zero = i8x16.splat(isQ4 ? 8 : -128);
  if (isPresent(4)) {
    for (let t: usize = 0; t < numTokens; t++) {
      const from = addressOf(4) + ((<usize>first + t) * <usize>dim(1, 1) + <usize>begin << 2);
      for (let block: usize = 0; block < <usize>numBlocks; block++) {
        memory.copy(sums + block * sumBytes + (t << 7), from + (block << 7), 128);
      }
    }
  } else memory.fill(sums, 0, <usize>numBlocks * sumBytes);
  for (let j = 0; j < count; j += ROWS) {
    const numQuads = (min<i32>(ROWS, count - j) + 3) >> 2;
    takeRows(table, j, count, begin);
    for (let t: usize = 0; t < numTokens; t++) takeFactors(scratch + FACTORS + t * TABLE_BYTES, j, count, first + <i32>t);
    for (let block: usize = 0; block < <usize>numBlocks; block++) {
      fetchScales(table, block * blockBytes, blockBytes, 1, raw);
      mixBlock(isQ4, table, block * blockBytes, numQuads, mixed);
      let to = sums + block * sumBytes;
      for (let t: usize = 0; t < numTokens; t++, to += 128) {
        const scale = quantiseScales(raw, scratch + FACTORS + t * TABLE_BYTES, codes);
        if (isNarrow) addMixed(mixed, numQuads, codes, scale, zero, to);
        else addMixedWide(mixed, numQuads, codes, scale, isQ4 ? 8 : 128, to);
      }
    }
  }
  for (let t: usize = 0; t < numTokens; t++) {
    const y = addressOf(5) + ((<usize>first + t) * <usize>dim(1, 1) + <usize>begin << 2);
    for (let block: usize = 0; block < <usize>numBlocks; block++) {
      memory.copy(y + (block << 7), sums + block * sumBytes + (t << 7), 128);
    }
  }
}
