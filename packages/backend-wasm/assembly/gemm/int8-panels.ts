/**
 * Blocked qgemm: panels of MC rows and KC columns, four rows interleaved, are unpacked to bytes once for all tokens. A caller
 * begins a panel, unpacks the groups of each KC columns and multiplies them, and then takes the sums.
 */
import { bytesOf, Q8_0 } from '../quant/dequantize';
import { codeBytesFor, META_BYTES, paddedTokens } from '../quant/quantize-activations';
import { UNPACKED_BYTES, initialOf, unpackGroup } from './int8-unpack';
import { qgemmBlock, qgemmRepackedQ8 } from './qgemm';
import { GROUP } from './repack';

/** Rows of a panel. */
export const MC: i32 = 32;
/** Columns of a panel: 16 blocks, two super-blocks. */
export const KC: i32 = 512;
/** Bytes of a group in a panel. */
const GROUP_BYTES: usize = <usize>(KC >> 5) * UNPACKED_BYTES;

let panel: usize = 0;
/** Sums `[group][token][4]`, whole fours of tokens. */
let sums: usize = 0;
let sumBytes: usize = 0;
let dtype: i32 = 0;
let numGroups: i32 = 0;
let numTokens: i32 = 0;

/** Lays a panel of so many rows and tokens out in the scratch, with sums of 0; returns where that ends. */
export function beginPanel(scratch: usize, weightType: i32, numRows: i32, tokens: i32): usize {
  panel = scratch;
  dtype = weightType;
  numGroups = (numRows + GROUP - 1) / GROUP;
  numTokens = tokens;
  sumBytes = (<usize>paddedTokens(tokens)) << 4;
  sums = panel + <usize>(MC / GROUP) * GROUP_BYTES;
  memory.fill(sums, 0, <usize>numGroups * sumBytes);
  return sums + <usize>(MC / GROUP) * sumBytes;
}

/** Unpacks blocks `[begin, end)` of a group of rows; `begin` is the first of a super-block. */
export function unpackRows(g: i32, group: usize, begin: i32, end: i32): void {
  unpackGroup(dtype, group, begin, end, panel + <usize>g * GROUP_BYTES);
}

/** Adds blocks of the panel times tokens, whose codes and metas `[block][token]` have `stride` tokens in each block. */
export function multiplyPanel(numBlocks: i32, codes: usize, metas: usize, stride: i32): void {
  const codeBytes = codeBytesFor(dtype, 32) * <usize>stride;
  const initial = initialOf(dtype);
  for (let block = 0; block < numBlocks; block++) {
    let at = panel + <usize>block * UNPACKED_BYTES;
    for (let g = 0, c = sums; g < numGroups; g++, c += sumBytes, at += GROUP_BYTES) {
      qgemmBlock(dtype, at, codes, metas, initial, c, numTokens);
    }
    codes += codeBytes;
    metas += <usize>stride * META_BYTES;
  }
}

/** The same for repacked rows of q8_0, `groupBytes` from group to group, whose codes are bytes already. Relaxed builds only. */
export function multiplyRepackedQ8(
  block: usize,
  groupBytes: usize,
  numBlocks: i32,
  codes: usize,
  metas: usize,
  stride: i32,
): void {
  const codeBytes = codeBytesFor(Q8_0, 32) * <usize>stride;
  for (
    const end = block + <usize>numBlocks * bytesOf(Q8_0, 32) * GROUP;
    block < end;
    block += bytesOf(Q8_0, 32) * GROUP
  ) {
    let at = block;
    for (let g = 0, c = sums; g < numGroups; g++, c += sumBytes, at += groupBytes) {
      qgemmRepackedQ8(at, codes, metas, c, numTokens);
    }
    codes += codeBytes;
    metas += <usize>stride * META_BYTES;
  }
}

/** The sums of the four rows of a group for a token. */
export function panelSums(g: i32, token: i32): v128 {
  return v128.load(sums + <usize>g * sumBytes + ((<usize>token) << 4));
}
