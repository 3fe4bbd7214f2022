/**
 * State of GEMM microkernels that dequantize rows of f16 alongside their own multiply-adds: dequantization needs few of the
 * resources that limit the GEMM, so that both take hardly longer than the GEMM alone. `dequantizeBeside` sets what to dequantize;
 * each kernel dequantizes as many numbers as it multiplies weights, and `dequantizeRest` does the remainder.
 */
import { areNormal, dequantizeCarefully, dequantizeSwizzled } from '../quant/swizzled-f16';

export let source: usize = 0;
export let target: usize = 0;
/** How many numbers are left to dequantize. */
export let pending: i32 = 0;

/** Sets `count` numbers, a multiple of 8, to be dequantized alongside the following GEMM calls. */
export function dequantizeBeside(from: usize, to: usize, count: i32): void {
  source = from;
  target = to;
  pending = count;
}

/** Dequantizes whatever the kernels left over. */
export function dequantizeRest(): void {
  if (pending > 0) dequantizeSwizzled(source, target, pending);
  pending = 0;
}

/** Advances past `count` numbers that a kernel dequantized, and redoes those that are not normal if `rank` reports any. */
export function completeBeside(count: i32, rank: v128): void {
  if (!areNormal(rank)) dequantizeCarefully(source, target, count);
  source += (<usize>count) << 1;
  target += (<usize>count) << 2;
  pending -= count;
}
