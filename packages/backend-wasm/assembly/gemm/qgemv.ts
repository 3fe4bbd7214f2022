/**
 * qgemv: one token of 8-bit activations times groups of four interleaved rows, without dequantizing them first; decoding spends
 * most of its time here. Codes of activations are in the form that `codesFor` finds. Relaxed builds only.
 */
import { Q4_0, Q8_0 } from '../quant/dequantize';
import { hasMaddubs, hasUsdot } from './int8-dot';
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

/** Groups that are computed together. */
export function streamsOf(dtype: i32): i32 {
  return dtype === Q8_0 || dtype === Q4_0 ? 8 : 4;
}

/** The sums of the four rows of one group. */
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
export function qgemvStreams(
  dtype: i32,
  group: usize,
  stride: usize,
  numInputs: i32,
  x: usize,
  meta: usize,
  to: usize,
): void {
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
