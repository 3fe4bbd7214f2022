/** Loops that measure a machine; the unrolled ones are generated. */
import { addPairs, dot, hasMaddubs, pairs } from '../gemm/int8-dot';
import { integerDotsBy } from './roofline-loops.generated';

export { multiplyAdds, readMemory } from './roofline-loops.generated';

/** One step of a sum: 16 products of bytes, or 8 of 16 bits in builds without relaxed SIMD. */
export function dotStep<T>(a: v128, b: v128, sum: v128, ones: v128): v128 {
  if (sizeof<T>() === 2) return addPairs(sum, pairs(a, b), ones);
  return ASC_FEATURE_RELAXED_SIMD ? dot(a, b, sum) : i32x4.add(i32x4.dot_i16x8_s(a, b), sum);
}

/** Integer dot products as this build and this machine have them. */
export function integerDots(data: usize, passes: i32): i32 {
  return hasMaddubs() ? integerDotsBy<i16>(data, passes) : integerDotsBy<i32>(data, passes);
}
