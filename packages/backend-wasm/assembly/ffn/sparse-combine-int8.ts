/**
 * Weighted sums of chosen rows of q8_0 and q4_0 with integer products. Units: runs of columns. Up to three tokens in
 * relaxed builds: eight rows at a time, see axpy.ts, and 32 before their sums are added to those before, so that
 * sparse-feed-forward gives the same. Otherwise 32 at a time, a block of which is interleaved once for all
 * tokens; see axpy-tokens.ts.
 */
import { Q4_0, bytesOf } from '../quant/dequantize';
import {
  addMixed,
  addMixedWide,
  fetchScales,
  mixBlock,
  MIXED_BYTES,
  quantiseScales,
  RAW_BYTES,
  ROWS,
} from './axpy-tokens';
import { foursOf, readsRecords } from './repack-neurons';
import { addressOf, dim, dtypeOf, isPresent, localScratch } from '../runtime/record';
import { EIGHT } from './gather-gemv';
import { addRows } from './axpy';
import { takeUnits, threads } from '../runtime/threads';
import { beginSums, rowAddress } from '../ops/sparse-combine';

/** Columns of a unit where a block serves all tokens. */
const MIXED_COLUMNS: i32 = 256;
/** Tokens of one pass over the weights. */
const NC: i32 = 64;
/** Fewest tokens that pay for interleaving first. */
const MIN_MIXED_TOKENS: i32 = 4;

// scratch: addresses of rows; coefficients of each token; scales of a block; codes; a block; sums
const TABLE_BYTES: usize = (<usize>ROWS) << 2;
const FACTORS: usize = TABLE_BYTES;
const RAW: usize = FACTORS + <usize>NC * TABLE_BYTES;
const CODES: usize = RAW + RAW_BYTES;
const MIXED: usize = CODES + 64;
const SUMS: usize = MIXED + MIXED_BYTES;

export function sparseCombineInt8(): void {
  const numTokens = dim(0, 0);
  const numOutputs = dim(1, 1);
  const isMixed = !ASC_FEATURE_RELAXED_SIMD || numTokens >= MIN_MIXED_TOKENS;
  const unit = isMixed ? MIXED_COLUMNS : unitOf(numOutputs);
  for (let begin = takeUnits(unit); begin < numOutputs; begin = takeUnits(unit)) {
    const columns = min<i32>(unit, numOutputs - begin);
    if (!isMixed) {
      fewTokens(begin, columns, numTokens);
      continue;
    }
    for (let t = 0; t < numTokens; t += NC) manyTokens(begin, columns, t, min<i32>(numTokens, t + NC));
  }
}

/** One unit for each thread, as long as memory likes them. */
function unitOf(numOutputs: i32): i32 {
  return max<i32>(256, (numOutputs / threads() + 31) & ~31);
}

/** Notes where the columns of `numRows` rows are, every `step`th from `j` on; the last one stands in for those beyond it. */
function takeRows(table: usize, j: i32, step: i32, count: i32, begin: i32, numRows: i32): void {
  const dtype = dtypeOf(1);
  for (let k = 0; k < numRows; k++) {
    const row = rowAddress(min<i32>(j + k * step, count - 1));
    const at = readsRecords() ? foursOf(dtype === Q4_0, row, dim(1, 1) >> 5, begin >> 5) : row + bytesOf(dtype, begin);
    store<u32>(table + ((<usize>k) << 2), <u32>at);
  }
}

/** What these rows are multiplied by for token `t`, zeros beyond the last row. */
function takeFactors(to: usize, j: i32, step: i32, count: i32, t: i32, numRows: i32): void {
  const from = addressOf(0) + ((<usize>t * <usize>dim(0, 1)) << 2);
  for (const end = to + ((<usize>numRows) << 2); to < end; to += 4, j += step) {
    store<f32>(to, j < count ? load<f32>(from + ((<usize>j) << 2)) : 0);
  }
}

function fewTokens(begin: i32, columns: i32, numTokens: i32): void {
  const count = load<i32>(addressOf(3));
  const isQ4 = dtypeOf(1) === Q4_0;
  const table = localScratch();
  const factors = table + FACTORS;
  const y = addressOf(5) + ((<usize>begin) << 2);
  const yRow = (<usize>dim(1, 1)) << 2;
  for (let t = 0; t < numTokens; t++) beginSums(y + <usize>t * yRow, t, begin, columns);
  const sums = table + SUMS;
  const sumBytes = (<usize>columns) << 2;
  for (let j = 0; j < count; j += ROWS) {
    const end = min<i32>(count, j + ROWS);
    memory.fill(sums, 0, <usize>numTokens * sumBytes);
    const numEights = (end - j + EIGHT - 1) / EIGHT;
    for (let k = j; k < j + numEights; k++) {
      takeRows(table, k, numEights, count, begin, EIGHT);
      for (let t = 0; t < numTokens; t++) {
        takeFactors(factors, k, numEights, count, t, EIGHT);
        addRows(isQ4, table, 0, factors, columns >> 5, sums + <usize>t * sumBytes, factors + TABLE_BYTES);
      }
    }
    for (let t = 0; t < numTokens; t++) addSums(y + <usize>t * yRow, sums + <usize>t * sumBytes, sumBytes);
  }
}

/** Adds `sizeBytes` bytes of sums to others. */
function addSums(to: usize, sums: usize, sizeBytes: usize): void {
  for (let at: usize = 0; at < sizeBytes; at += 16) {
    v128.store(to + at, f32x4.add(v128.load(to + at), v128.load(sums + at)));
  }
}

/** Tokens `[first, last)`, sums as `[block][token][32]`. */
function manyTokens(begin: i32, columns: i32, first: i32, last: i32): void {
  const count = load<i32>(addressOf(3));
  const isQ4 = dtypeOf(1) === Q4_0;
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
  const isRecords = readsRecords();
  if (isPresent(4)) {
    for (let t: usize = 0; t < numTokens; t++) {
      const from = addressOf(4) + (((<usize>first + t) * <usize>dim(1, 1) + <usize>begin) << 2);
      for (let block: usize = 0; block < <usize>numBlocks; block++) {
        memory.copy(sums + block * sumBytes + (t << 7), from + (block << 7), 128);
      }
    }
  } else memory.fill(sums, 0, <usize>numBlocks * sumBytes);
  for (let j = 0; j < count; j += ROWS) {
    const numQuads = (min<i32>(ROWS, count - j) + 3) >> 2;
    takeRows(table, j, 1, count, begin, ROWS);
    for (let t: usize = 0; t < numTokens; t++)
      takeFactors(scratch + FACTORS + t * TABLE_BYTES, j, 1, count, first + <i32>t, ROWS);
    for (let block: usize = 0; block < <usize>numBlocks; block++) {
      // of four blocks of records scales come first, then codes, which are unsigned
      const inFour: usize = isRecords ? block & 3 : 0;
      const offset = (block - inFour) * blockBytes;
      const codesAt = isRecords ? offset + 8 + inFour * (blockBytes - 2) : offset + 2;
      fetchScales(table, offset + (inFour << 1), raw);
      mixBlock(isQ4, table, codesAt, isQ4 || isRecords ? 0 : -128, numQuads, mixed);
      let to = sums + block * sumBytes;
      for (let t: usize = 0; t < numTokens; t++, to += 128) {
        const scale = quantiseScales(raw, scratch + FACTORS + t * TABLE_BYTES, codes);
        if (ASC_FEATURE_RELAXED_SIMD) addMixed(isQ4, mixed, numQuads, codes, scale, to);
        else addMixedWide(mixed, numQuads, codes, scale, isQ4 ? 8 : 128, to);
      }
    }
  }
  for (let t: usize = 0; t < numTokens; t++) {
    const y = addressOf(5) + (((<usize>first + t) * <usize>dim(1, 1) + <usize>begin) << 2);
    for (let block: usize = 0; block < <usize>numBlocks; block++) {
      memory.copy(y + (block << 7), sums + block * sumBytes + (t << 7), 128);
    }
  }
}
