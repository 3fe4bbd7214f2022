/**
 * sparse-combine of q8_0 and q4_0 with integer dot products. Work items: runs of columns. Up to three tokens in relaxed builds:
 * eight rows at a time (axpy.ts), summed over 32 rows before they are added to y, in the order of sparse-feed-forward, so that
 * both give the same result. Otherwise 32 rows at a time, whose blocks are interleaved once for all tokens (axpy-tokens.ts).
 */
import { Q4_0, bytesOf } from '../quant/dequantize';
import { count, h, previous, rows, weight, y } from '../operands/sparse-combine.generated';
import { localScratch, strideOf } from '../runtime/record';
import { nextItems, threads } from '../runtime/threads';
import { axpy, beginAxpy } from './axpy';
import { axpyInterleaved, gatherScales, INTERLEAVED_BYTES, interleaveBlock, ROWS, SCALES_BYTES } from './axpy-tokens';
import { tokenCoefficients } from './axpy-tokens.generated';
import { foursOf, readsRepacked } from './repack-neurons';
import { AXPY_ROWS, MIN_PANEL_TOKENS, SUMS_BYTES } from '../runtime/layout.generated';

/** Columns of a work item when interleaved blocks serve all tokens. */
const INTERLEAVED_COLUMNS: i32 = 256;
/** Tokens per pass over the weights. */
const NC: i32 = 64;

// scratch: addresses of rows; factors of each token; scales of a block; codes of coefficients; an interleaved block; sums
const TABLE_BYTES: usize = (<usize>ROWS) << 2;
const FACTORS: usize = TABLE_BYTES;
const SCALES: usize = FACTORS + <usize>NC * TABLE_BYTES;
const CODES: usize = SCALES + SCALES_BYTES;
const INTERLEAVED: usize = CODES + 64;
const SUMS: usize = INTERLEAVED + INTERLEAVED_BYTES;
/** Scratch before the sums. */
export const WEIGHTED_SUM_TABLES: usize = SUMS;

// of the current op, set by each thread
let numActive: i32 = 0;
let isQ4: bool = false;
let numOutputs: i32 = 0;

export function sparseCombineInt8(): void {
  const numTokens = h.numTokens;
  numOutputs = weight.dim;
  numActive = load<i32>(count.address);
  isQ4 = weight.dtype === Q4_0;
  const isInterleaved = !ASC_FEATURE_RELAXED_SIMD || numTokens >= MIN_PANEL_TOKENS;
  const unit = isInterleaved ? INTERLEAVED_COLUMNS : columnsPerThread();
  for (let begin = nextItems(unit); begin < numOutputs; begin = nextItems(unit)) {
    const columns = min<i32>(unit, numOutputs - begin);
    if (!isInterleaved) {
      addRows(begin, columns, numTokens);
      continue;
    }
    for (let t = 0; t < numTokens; t += NC) addInterleaved(begin, columns, t, min<i32>(numTokens, t + NC));
  }
}

/** Address of the active row `j`, or of the neuron that it is part of. */
export function rowAddress(j: i32): usize {
  const row = <usize>load<u32>(rows.address + ((<usize>j) << 2));
  return weight.address + row * strideOf(bytesOf(weight.dtype, weight.dim));
}

/** Initializes the sums of row t of y from column `begin` on, with `previous` or zeros. */
export function beginSums(to: usize, t: i32, begin: i32, columns: i32): void {
  const offset = (<usize>t * <usize>weight.dim + <usize>begin) << 2;
  if (previous.isPresent) memory.copy(to, previous.address + offset, (<usize>columns) << 2);
  else memory.fill(to, 0, (<usize>columns) << 2);
}

/** Columns of a work item, at least 256, such that there is one for each thread. */
function columnsPerThread(): i32 {
  return max<i32>(256, (numOutputs / threads() + 31) & ~31);
}

/**
 * Gathers the addresses of column `begin` in `numRows` rows, every `step`th from `j` on; the last row stands in for those
 * beyond it.
 */
function gatherAddresses(table: usize, j: i32, step: i32, begin: i32, numRows: i32): void {
  for (let k = 0; k < numRows; k++) {
    const row = rowAddress(min<i32>(j + k * step, numActive - 1));
    const at = readsRepacked() ? foursOf(isQ4, row, numOutputs >> 5, begin >> 5) : row + bytesOf(weight.dtype, begin);
    store<u32>(table + ((<usize>k) << 2), <u32>at);
  }
}

/** Gathers the factors of these rows for token `t`, with zeros beyond the last row. */
function gatherFactors(to: usize, j: i32, step: i32, t: i32, numRows: i32): void {
  const from = h.address + ((<usize>t * <usize>h.maxActive) << 2);
  for (const end = to + ((<usize>numRows) << 2); to < end; to += 4, j += step) {
    store<f32>(to, j < numActive ? load<f32>(from + ((<usize>j) << 2)) : 0);
  }
}

function addRows(begin: i32, columns: i32, numTokens: i32): void {
  const table = localScratch();
  const factors = table + FACTORS;
  beginAxpy(isQ4, false, table, factors + TABLE_BYTES);
  const rowsOfY = y.address + ((<usize>begin) << 2);
  const yRow = (<usize>numOutputs) << 2;
  for (let t = 0; t < numTokens; t++) beginSums(rowsOfY + <usize>t * yRow, t, begin, columns);
  const sumBytes = (<usize>columns) << 2;
  for (let j = 0; j < numActive; j += ROWS) {
    const numEights = (min<i32>(numActive - j, ROWS) + AXPY_ROWS - 1) / AXPY_ROWS;
    for (let k = j; k < j + numEights; k++) {
      gatherAddresses(table, k, numEights, begin, AXPY_ROWS);
      for (let t = 0; t < numTokens; t++) {
        const sums = table + SUMS + <usize>t * sumBytes;
        gatherFactors(factors, k, numEights, t, AXPY_ROWS);
        axpy(0, factors, columns >> 5, k === j ? 0 : sums, sums);
      }
    }
    for (let t = 0; t < numTokens; t++)
      addSums(rowsOfY + <usize>t * yRow, table + SUMS + <usize>t * sumBytes, sumBytes);
  }
}

/** Adds `sizeBytes` bytes of sums to those at `to`. */
export function addSums(to: usize, sums: usize, sizeBytes: usize): void {
  for (let at: usize = 0; at < sizeBytes; at += 16) {
    v128.store(to + at, f32x4.add(v128.load(to + at), v128.load(sums + at)));
  }
}

/** Copies the sums of tokens, `[block][token][32]` in the scratch, to rows of y or from rows of `previous`. */
function copySums(isStoring: bool, tensor: usize, begin: i32, numBlocks: i32, first: i32, numTokens: i32): void {
  for (let t = 0; t < numTokens; t++) {
    let row = tensor + ((<usize>(first + t) * <usize>numOutputs + <usize>begin) << 2);
    let sums = localScratch() + SUMS + ((<usize>t) << 7);
    for (let block = 0; block < numBlocks; block++, row += SUMS_BYTES, sums += (<usize>numTokens) << 7) {
      if (isStoring) memory.copy(row, sums, SUMS_BYTES);
      else memory.copy(sums, row, SUMS_BYTES);
    }
  }
}

/** Computes the columns of tokens `[first, last)` with interleaved blocks. */
function addInterleaved(begin: i32, columns: i32, first: i32, last: i32): void {
  const numBlocks = columns >> 5;
  const numTokens = last - first;
  const table = localScratch();
  if (previous.isPresent) copySums(false, previous.address, begin, numBlocks, first, numTokens);
  else memory.fill(table + SUMS, 0, (<usize>(numBlocks * numTokens)) << 7);
  for (let j = 0; j < numActive; j += ROWS) {
    const numQuads = (min<i32>(ROWS, numActive - j) + 3) >> 2;
    gatherAddresses(table, j, 1, begin, ROWS);
    for (let t = 0; t < numTokens; t++) {
      gatherFactors(table + FACTORS + <usize>t * TABLE_BYTES, j, 1, first + t, ROWS);
    }
    for (let block = 0; block < numBlocks; block++) addBlock(block, numQuads, numTokens);
  }
  copySums(true, y.address, begin, numBlocks, first, numTokens);
}

/** Adds one block of the rows in the table to the sums of all tokens. */
function addBlock(block: i32, numQuads: i32, numTokens: i32): void {
  const scratch = localScratch();
  const blockBytes = bytesOf(weight.dtype, 32);
  const isRepacked = readsRepacked();
  // in four repacked blocks, scales come first, then codes, which are unsigned
  const inFour: usize = isRepacked ? block & 3 : 0;
  const offset = (<usize>block - inFour) * blockBytes;
  const codesAt = isRepacked ? offset + 8 + inFour * (blockBytes - 2) : offset + 2;
  gatherScales(scratch, offset + (inFour << 1), scratch + SCALES);
  interleaveBlock(isQ4, scratch, codesAt, isQ4 || isRepacked ? 0 : -128, numQuads, scratch + INTERLEAVED);
  let factors = scratch + FACTORS;
  let sums = scratch + SUMS + ((<usize>(block * numTokens)) << 7);
  for (let t = 0; t < numTokens; t++, factors += TABLE_BYTES, sums += SUMS_BYTES) {
    const scale = tokenCoefficients(scratch + SCALES, factors, scratch + CODES);
    axpyInterleaved(isQ4, scratch + INTERLEAVED, numQuads, scratch + CODES, scale, sums);
  }
}
