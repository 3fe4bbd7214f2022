/**
 * GEMM microkernels that dequantize rows of f16 beside their own products: dequantizing needs little of what products wait for,
 * so that both together take hardly longer than the products alone. `dequantizeBeside` says what is dequantized next; kernels
 * take as much of it as they multiply, `dequantizeRest` what is left then.
 */
import { areNormal, dequantizeCarefully, dequantizeSwizzled } from '../quant/swizzled-f16';

export let source: usize = 0;
export let target: usize = 0;
/** Numbers that are left. */
export let pending: i32 = 0;

/** What is dequantized beside the products that follow: `count` numbers, a multiple of 8. */
export function dequantizeBeside(from: usize, to: usize, count: i32): void {
  source = from;
  target = to;
  pending = count;
}

/** Dequantizes what the kernels left. */
export function dequantizeRest(): void {
  if (pending > 0) dequantizeSwizzled(source, target, pending);
  pending = 0;
}

/** Moves on by the `count` numbers that a kernel dequantized; again, with care, where `rank` shows numbers that are not normal. */
export function completeBeside(count: i32, rank: v128): void {
  if (!areNormal(rank)) dequantizeCarefully(source, target, count);
  source += (<usize>count) << 1;
  target += (<usize>count) << 2;
  pending -= count;
}
