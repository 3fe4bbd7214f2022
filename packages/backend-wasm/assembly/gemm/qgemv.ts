/**
 * qgemv: a few tokens of 8-bit activations times groups of four interleaved rows; decoding spends most of its time here. Relaxed
 * builds stream several groups side by side without unpacking them, others unpack each group first.
 */
import { Q4_0, Q6_K, Q8_0, bytesOf } from '../quant/dequantize';
import { qgemvInt16 } from './int16-dot';
import { hasMaddubs, hasUsdot } from './int8-dot';
import { initialOf, unpackGroup } from './int8-unpack';
import {
  qgemvK,
  qgemvKx4,
  qgemvQ4,
  qgemvQ4x8,
  qgemvQ8,
  qgemvQ8SignMagnitude,
  qgemvQ8SignMagnitudex8,
  qgemvQ8x8,
} from './qgemv.generated';
import { GROUP } from './repack';

/** Groups that are streamed side by side. */
export function streamsOf(dtype: i32): i32 {
  return dtype === Q8_0 || dtype === Q4_0 ? 8 : 4;
}

/** The sums of the four rows of one group. Codes of activations are where `codesFor` says. Relaxed builds only. */
export function qgemvGroup(dtype: i32, group: usize, numInputs: i32, x: usize, meta: usize): v128 {
  if (dtype === Q8_0) {
    if (hasUsdot()) return qgemvQ8(group, numInputs, x, meta);
    if (hasMaddubs()) return qgemvQ8SignMagnitude<i16>(group, numInputs, x, meta);
    return qgemvQ8SignMagnitude<i32>(group, numInputs, x, meta);
  }
  if (dtype === Q4_0) {
    return hasMaddubs() ? qgemvQ4<i16>(group, numInputs, x, meta) : qgemvQ4<i32>(group, numInputs, x, meta);
  }
  return hasMaddubs() ? qgemvK<i16>(dtype, group, numInputs, x, meta) : qgemvK<i32>(dtype, group, numInputs, x, meta);
}

/** The sums of as many groups as `streamsOf` says, `stride` bytes from one to the next, as `to[streams][4]`. */
function qgemvStreams(dtype: i32, group: usize, stride: usize, numInputs: i32, x: usize, meta: usize, to: usize): void {
  if (dtype === Q8_0) {
    if (hasUsdot()) qgemvQ8x8(group, stride, numInputs, x, meta, to);
    else if (hasMaddubs()) qgemvQ8SignMagnitudex8<i16>(group, stride, numInputs, x, meta, to);
    else qgemvQ8SignMagnitudex8<i32>(group, stride, numInputs, x, meta, to);
    return;
  }
  if (dtype === Q4_0) {
    if (hasMaddubs()) qgemvQ4x8<i16>(group, stride, numInputs, x, meta, to);
    else qgemvQ4x8<i32>(group, stride, numInputs, x, meta, to);
    return;
  }
  if (hasMaddubs()) qgemvKx4<i16>(dtype, group, stride, numInputs, x, meta, to);
  else qgemvKx4<i32>(dtype, group, stride, numInputs, x, meta, to);
}

// scratch: sums of the streams, then tokens, each with the addresses of codes, metas and outputs, then an unpacked group
const TOKENS: usize = 128;
const TOKEN_BYTES: usize = 12;
const UNPACKED: usize = 256;

let scratch: usize = 0;
let endOfTokens: usize = 0;
// of the rows, set by `qgemvRows`
let dtype: i32 = 0;
let numInputs: i32 = 0;
let groupBytes: usize = 0;
let biasAt: usize = 0;

/** From here on tokens are listed, ten at most. */
export function beginTokens(base: usize): void {
  scratch = base;
  endOfTokens = base + TOKENS;
}

/** Lists a token: its codes, as `codesFor` has them, their metas, and its row of outputs. */
export function addToken(codes: usize, meta: usize, y: usize): void {
  store<u32>(endOfTokens, <u32>codes);
  store<u32>(endOfTokens, <u32>meta, 4);
  store<u32>(endOfTokens, <u32>y, 8);
  endOfTokens += TOKEN_BYTES;
}

/** Rows `[begin, end)`, whole groups of the repacked weights, times the listed tokens; `bias` is 0 where there is none. */
export function qgemvRows(weightType: i32, weight: usize, begin: i32, end: i32, numColumns: i32, bias: usize): void {
  dtype = weightType;
  numInputs = numColumns;
  biasAt = bias;
  groupBytes = bytesOf(dtype, numInputs) * GROUP;
  const group = weight + <usize>(begin / GROUP) * groupBytes;
  if (ASC_FEATURE_RELAXED_SIMD) streamGroups(group, (end - begin) / GROUP, (<usize>begin) << 2);
  else unpackGroups(group, (end - begin) / GROUP, (<usize>begin) << 2);
}

/** Some runs of groups side by side; what is left over goes one group at a time. */
function streamGroups(group: usize, numGroups: i32, offset: usize): void {
  const streams = streamsOf(dtype);
  const run = numGroups / streams;
  for (let g = 0; g < run; g++) {
    const at = group + <usize>g * groupBytes;
    for (let token = scratch + TOKENS; token < endOfTokens; token += TOKEN_BYTES) {
      qgemvStreams(dtype, at, <usize>run * groupBytes, numInputs, load<u32>(token), load<u32>(token, 4), scratch);
      for (let i = 0; i < streams; i++) {
        storeFour(v128.load(scratch + ((<usize>i) << 4)), token, offset + ((<usize>(i * run + g)) << 4));
      }
    }
  }
  for (let g = run * streams; g < numGroups; g++) {
    const at = group + <usize>g * groupBytes;
    for (let token = scratch + TOKENS; token < endOfTokens; token += TOKEN_BYTES) {
      const sums = qgemvGroup(dtype, at, numInputs, load<u32>(token), load<u32>(token, 4));
      storeFour(sums, token, offset + ((<usize>g) << 4));
    }
  }
}

function unpackGroups(group: usize, numGroups: i32, offset: usize): void {
  const unpacked = scratch + UNPACKED;
  for (let g = 0; g < numGroups; g++, group += groupBytes, offset += 16) {
    unpackGroup(dtype, group, 0, numInputs >> 5, unpacked);
    for (let token = scratch + TOKENS; token < endOfTokens; token += TOKEN_BYTES) {
      const sums = qgemvUnpacked(dtype, unpacked, numInputs, load<u32>(token), load<u32>(token, 4));
      storeFour(sums, token, offset);
    }
  }
}

/** An unpacked group times a token, in builds without relaxed SIMD. */
export function qgemvUnpacked(dtype: i32, unpacked: usize, numInputs: i32, codes: usize, meta: usize): v128 {
  return qgemvInt16(unpacked, numInputs >> 5, codes, meta, initialOf(dtype), dtype === Q6_K, f32x4.splat(0));
}

/** Stores the sums of four rows of a token, plus their bias, `offset` bytes from the first of all outputs. */
/* @inline */ function storeFour(sums: v128, token: usize, offset: usize): void {
  if (biasAt !== 0) sums = f32x4.add(sums, v128.load(biasAt + offset));
  v128.store(<usize>load<u32>(token, 8) + offset, sums);
}
