/**
 * Blocked qgemm: panels of MC rows and KC columns, four rows interleaved, are unpacked to bytes once for all tokens. A caller
 * begins a panel, unpacks and multiplies the groups for every KC columns, and finally stores the sums.
 */
import { bytesOf, Q8_0, Q8_0_BLOCK_BYTES } from '../quant/dequantize';
import { codeBytesFor, paddedTokens } from '../quant/quantize-activations';
import { initialOf, unpackGroup } from './unpacked-groups';
import { qgemmBlock, qgemmRepackedQ8 } from './qgemm';
import { codesOf, metasOf, storeOutputs } from './tokens';
import { GROUP_SIZE, META_BYTES, UNPACKED_BYTES } from '../runtime/layout.generated';

/** Rows per panel. */
export const MC: i32 = 32;
/** Columns per panel: 16 blocks, two super-blocks. */
export const KC: i32 = 512;
/** Bytes of a group in a panel. */
const GROUP_BYTES: usize = <usize>(KC >> 5) * UNPACKED_BYTES;

let panel: usize = 0;
/** Sums `[group][token][4]`, with tokens padded to a multiple of four. */
let sums: usize = 0;
let sumBytes: usize = 0;
let dtype: i32 = 0;
let numGroups: i32 = 0;
let numTokens: i32 = 0;
/** Codes and metas `[block][token]` of the activations; 0 if they have to be gathered. */
let codes: usize = 0;
let metas: usize = 0;
let stride: usize = 0;

/** Lays out a panel for `numRows` rows and `tokens` tokens in the scratch and zeroes its sums; returns its end. */
export function beginPanel(scratch: usize, weightType: i32, numRows: i32, tokens: i32): usize {
  panel = scratch;
  dtype = weightType;
  numGroups = (numRows + GROUP_SIZE - 1) / GROUP_SIZE;
  numTokens = tokens;
  codes = 0;
  sumBytes = (<usize>paddedTokens(tokens)) << 4;
  sums = panel + <usize>(MC / GROUP_SIZE) * GROUP_BYTES;
  memory.fill(sums, 0, <usize>numGroups * sumBytes);
  return sums + <usize>(MC / GROUP_SIZE) * sumBytes;
}

/** Unpacks blocks `[begin, end)` of a group of rows; `begin` starts a super-block. */
export function unpackRows(g: i32, group: usize, begin: i32, end: i32): void {
  unpackGroup(dtype, group, begin, end, panel + <usize>g * GROUP_BYTES);
}

/** Sets where the codes and metas of the panel's tokens are, as `[block][token]` with `tokens` tokens per block. */
export function setColumns(codesAt: usize, metasAt: usize, tokens: i32): void {
  codes = codesAt;
  metas = metasAt;
  stride = <usize>tokens;
}

/** Multiplies the blocks of the panel by the blocks of activations from `first` on and adds to the sums. */
export function multiplyPanel(first: i32, numBlocks: i32): void {
  const initial = initialOf(dtype);
  const codeBytes = codeBytesFor(dtype, 32);
  const end = sums + <usize>numGroups * sumBytes;
  for (let block = 0; block < numBlocks; block++) {
    const column = <usize>(first + block) * stride;
    const x = codes + column * codeBytes;
    const meta = metas + column * META_BYTES;
    let at = panel + <usize>block * UNPACKED_BYTES;
    for (let c = sums; c < end; c += sumBytes, at += GROUP_BYTES) qgemmBlock(dtype, at, x, meta, initial, c, numTokens);
  }
}

/** The same for repacked groups of q8_0, `groupBytes` apart, whose codes are bytes already. Relaxed builds only. */
function multiplyBytes(groups: usize, groupBytes: usize, first: i32, numBlocks: i32): void {
  const codeBytes = codeBytesFor(Q8_0, 32);
  const end = sums + <usize>numGroups * sumBytes;
  for (let block = 0; block < numBlocks; block++) {
    const column = <usize>(first + block) * stride;
    const x = codes + column * codeBytes;
    const meta = metas + column * META_BYTES;
    let at = groups + <usize>block * (Q8_0_BLOCK_BYTES * GROUP_SIZE);
    for (let c = sums; c < end; c += sumBytes, at += groupBytes) qgemmRepackedQ8(at, x, meta, c, numTokens);
  }
}

/**
 * Computes outputs `[begin, end)` of a repacked matrix for tokens `[first, last)`. Codes and metas are where `setColumns` says;
 * without it they are gathered from the individual tokens.
 */
export function multiplyRepacked(matrix: usize, numInputs: i32, begin: i32, end: i32, first: i32, last: i32): void {
  const groupBytes = bytesOf(dtype, numInputs) * GROUP_SIZE;
  const groups = matrix + <usize>(begin / GROUP_SIZE) * groupBytes;
  const isGathered = codes === 0;
  for (let k = 0; k < numInputs; k += KC) {
    const block = k >> 5;
    const numBlocks = min<i32>(KC, numInputs - k) >> 5;
    const column = isGathered ? 0 : block;
    if (isGathered) gatherCodes(first, last, block, numBlocks);
    if (ASC_FEATURE_RELAXED_SIMD && dtype === Q8_0) {
      multiplyBytes(groups + bytesOf(Q8_0, k) * GROUP_SIZE, groupBytes, column, numBlocks);
    } else {
      for (let g = 0; g < numGroups; g++) unpackRows(g, groups + <usize>g * groupBytes, block, block + numBlocks);
      multiplyPanel(column, numBlocks);
    }
  }
  storePanel(begin, end, first, last);
}

/** Gathers blocks `[block, block + numBlocks)` of tokens as `[block][token]`; the last token stands in for those beyond it. */
function gatherCodes(first: i32, last: i32, block: i32, numBlocks: i32): void {
  const codeBytes = codeBytesFor(dtype, 32);
  const padded = paddedTokens(last - first);
  const gathered = sums + <usize>(MC / GROUP_SIZE) * sumBytes;
  setColumns(gathered, gathered + <usize>padded * codeBytesFor(dtype, KC), padded);
  for (let i = 0; i < padded; i++) {
    const token = min<i32>(first + i, last - 1);
    let from = codesOf(token) + <usize>block * codeBytes;
    let meta = metasOf(token) + <usize>block * META_BYTES;
    let at = <usize>i;
    for (let b = 0; b < numBlocks; b++, from += codeBytes, meta += META_BYTES, at += <usize>padded) {
      const to = codes + at * codeBytes;
      for (let v: usize = 0; v < codeBytes; v += 16) v128.store(to + v, v128.load(from + v));
      v128.store(metas + at * META_BYTES, v128.load(meta));
      v128.store(metas + at * META_BYTES, v128.load(meta, 16), 16);
    }
  }
}

/** Stores the sums of a panel as outputs `[begin, end)` of tokens `[first, last)`. */
export function storePanel(begin: i32, end: i32, first: i32, last: i32): void {
  let row = sums;
  for (let o = begin; o < end; o += GROUP_SIZE, row += sumBytes) {
    for (let token = first; token < last; token++) {
      storeOutputs(v128.load(row + ((<usize>(token - first)) << 4)), o, end, token);
    }
  }
}

/** Scratch per thread for a panel and the gathered codes of `numTokens` tokens. */
export function panelBytes(numTokens: i32): u64 {
  return <u64>(<usize>(MC / GROUP_SIZE) * GROUP_BYTES) + <u64>(MC * numTokens * 4) + <u64>(numTokens * KC * 3);
}
