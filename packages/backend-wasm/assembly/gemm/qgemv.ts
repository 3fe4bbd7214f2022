/**
 * qgemv: a few tokens of 8-bit activations times groups of four interleaved rows; decode spends most of its time here. Relaxed
 * builds stream several groups concurrently without unpacking them; others unpack each group first.
 */
import { Q4_0, Q4_K, Q5_K, Q6_K, Q8_0, bytesOf } from '../quant/dequantize';
import { qgemvInt16 } from './int16-dot';
import { hasMaddubs, hasUsdot } from '../quant/int8-dot';
import { initialOf, unpackGroup } from './unpacked-groups';
import * as kernels from './qgemv.generated';
import { codesOf, metasOf, storeOutputs } from './tokens';
import { isInvariant } from '../runtime/record';
import { BLOCK_STREAMS, GROUP_SIZE, SUPER_BLOCK_STREAMS } from '../runtime/layout.generated';

/** Number of groups that are streamed concurrently. */
export function streamsOf(dtype: i32): i32 {
  return dtype === Q8_0 || dtype === Q4_0 ? BLOCK_STREAMS : SUPER_BLOCK_STREAMS;
}

/**
 * Whether a step of several tokens uses qgemv because it must have the bits of steps of single tokens: with super-blocks, streams of
 * groups and qgemm scale sums in another order.
 */
export function streamsInvariant(dtype: i32, numTokens: i32): bool {
  return ASC_FEATURE_RELAXED_SIMD && dtype !== Q8_0 && dtype !== Q4_0 && isInvariant(numTokens);
}

/** The sums of the four rows of one group; T is i16 for maddubs, else i32. */
function groupSums<T>(dtype: i32, group: usize, numInputs: i32, x: usize, meta: usize): v128 {
  if (dtype === Q4_0) return kernels.qgemvQ4<T>(group, numInputs, x, meta);
  if (dtype === Q4_K) return kernels.qgemvQ4K<T>(group, numInputs, x, meta);
  if (dtype === Q5_K) return kernels.qgemvQ5K<T>(group, numInputs, x, meta);
  if (dtype === Q6_K) return kernels.qgemvQ6K<T>(group, numInputs, x, meta);
  if (hasUsdot()) return kernels.qgemvQ8(group, numInputs, x, meta);
  return kernels.qgemvQ8SignMagnitude<T>(group, numInputs, x, meta);
}

/** The same with the T of this machine; `x` are the codes that `codesFor` selects. Relaxed builds only. */
export function qgemvGroup(dtype: i32, group: usize, numInputs: i32, x: usize, meta: usize): v128 {
  if (hasMaddubs()) return groupSums<i16>(dtype, group, numInputs, x, meta);
  return groupSums<i32>(dtype, group, numInputs, x, meta);
}

/** The sums of `streamsOf(dtype)` groups, `stride` bytes apart, as `to[streams][4]`. */
function streamSums<T>(
  dtype: i32,
  group: usize,
  stride: usize,
  numInputs: i32,
  x: usize,
  meta: usize,
  to: usize,
): void {
  if (dtype === Q4_0) kernels.qgemvQ4x8<T>(group, stride, numInputs, x, meta, to);
  else if (dtype === Q4_K) kernels.qgemvQ4Kx4<T>(group, stride, numInputs, x, meta, to);
  else if (dtype === Q5_K) kernels.qgemvQ5Kx4<T>(group, stride, numInputs, x, meta, to);
  else if (dtype === Q6_K) kernels.qgemvQ6Kx4<T>(group, stride, numInputs, x, meta, to);
  else if (hasUsdot()) kernels.qgemvQ8x8(group, stride, numInputs, x, meta, to);
  else kernels.qgemvQ8SignMagnitudex8<T>(group, stride, numInputs, x, meta, to);
}

/** Offset of an unpacked group in the scratch, after the sums of the streams. */
const UNPACKED: usize = 256;

let dtype: i32 = 0;
let numInputs: i32 = 0;
let groupBytes: usize = 0;
let scratch: usize = 0;
let firstToken: i32 = 0;
let endOfTokens: i32 = 0;

/** Prepares `qgemvRows` for tokens `[first, last)`. */
export function beginQgemv(weightType: i32, numColumns: i32, first: i32, last: i32, at: usize): void {
  dtype = weightType;
  numInputs = numColumns;
  groupBytes = bytesOf(dtype, numInputs) * GROUP_SIZE;
  firstToken = first;
  endOfTokens = last;
  scratch = at;
}

/** Computes outputs `[begin, end)`, which are whole groups of the repacked weights. */
export function qgemvRows(weight: usize, begin: i32, end: i32): void {
  const group = weight + <usize>(begin / GROUP_SIZE) * groupBytes;
  if (ASC_FEATURE_RELAXED_SIMD) streamGroups(group, begin, end);
  else unpackGroups(group, begin, end);
}

/** Streams several runs of groups concurrently; leftover groups go one at a time. */
function streamGroups(group: usize, begin: i32, end: i32): void {
  const streams = streamsOf(dtype);
  const run = (end - begin) / (GROUP_SIZE * streams);
  const stride = <usize>run * groupBytes;
  for (let o = begin; o < begin + run * GROUP_SIZE; o += GROUP_SIZE, group += groupBytes) {
    for (let token = firstToken; token < endOfTokens; token++) {
      const codes = codesOf(token);
      if (hasMaddubs()) streamSums<i16>(dtype, group, stride, numInputs, codes, metasOf(token), scratch);
      else streamSums<i32>(dtype, group, stride, numInputs, codes, metasOf(token), scratch);
      for (let i = 0; i < streams; i++) {
        storeOutputs(v128.load(scratch + ((<usize>i) << 4)), o + i * run * GROUP_SIZE, end, token);
      }
    }
  }
  group += stride * <usize>(streams - 1);
  for (let o = begin + run * streams * GROUP_SIZE; o < end; o += GROUP_SIZE, group += groupBytes) {
    for (let token = firstToken; token < endOfTokens; token++) {
      storeOutputs(qgemvGroup(dtype, group, numInputs, codesOf(token), metasOf(token)), o, end, token);
    }
  }
}

function unpackGroups(group: usize, begin: i32, end: i32): void {
  const unpacked = scratch + UNPACKED;
  for (let o = begin; o < end; o += GROUP_SIZE, group += groupBytes) {
    unpackGroup(dtype, group, 0, numInputs >> 5, unpacked);
    for (let token = firstToken; token < endOfTokens; token++) {
      storeOutputs(qgemvUnpacked(dtype, unpacked, numInputs, codesOf(token), metasOf(token)), o, end, token);
    }
  }
}

/** An unpacked group times one token, in builds without relaxed SIMD. */
export function qgemvUnpacked(dtype: i32, unpacked: usize, numInputs: i32, codes: usize, meta: usize): v128 {
  return qgemvInt16(unpacked, numInputs >> 5, codes, meta, initialOf(dtype), dtype === Q6_K, f32x4.splat(0));
}
