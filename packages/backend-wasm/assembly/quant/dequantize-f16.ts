/** Dequantizes rows of binary16: runs of normal numbers by integer arithmetic, others by the general conversion. */
import { halfMask, halfOffset, largestRank, leastNormal, magnitudeMask } from '../simd/constants.generated';
import { halfToFloat, halfToFloat4, normalHalves } from '../simd/vector';

/** Dequantizes `count` numbers at `from` to `to`. */
export function dequantizeHalves(from: usize, to: usize, count: i32): void {
  const mask = halfMask();
  const magnitude = magnitudeMask();
  const least = leastNormal();
  const limit = largestRank();
  const offset = halfOffset();
  let left = count;
  for (; left >= 16; left -= 16, from += 32, to += 64) {
    const a = v128.load(from);
    const b = v128.load(from, 16);
    // 0 for the smallest normal number, `limit` for the largest, above it for zeros, denormals, Inf and NaN
    const rankA = i16x8.sub(v128.and(a, magnitude), least);
    const rankB = i16x8.sub(v128.and(b, magnitude), least);
    if (v128.any_true(i16x8.gt_u(i16x8.max_u(rankA, rankB), limit))) {
      v128.store(to, halfToFloat4(i32x4.extend_low_i16x8_u(a)));
      v128.store(to, halfToFloat4(i32x4.extend_high_i16x8_u(a)), 16);
      v128.store(to, halfToFloat4(i32x4.extend_low_i16x8_u(b)), 32);
      v128.store(to, halfToFloat4(i32x4.extend_high_i16x8_u(b)), 48);
      continue;
    }
    // sign-extending loads: widening the upper half of a vector would take another shuffle
    v128.store(to, normalHalves(v128.load16x4_s(from), mask, offset));
    v128.store(to, normalHalves(v128.load16x4_s(from, 8), mask, offset), 16);
    v128.store(to, normalHalves(v128.load16x4_s(from, 16), mask, offset), 32);
    v128.store(to, normalHalves(v128.load16x4_s(from, 24), mask, offset), 48);
  }
  for (; left > 0; left--, from += 2, to += 4) store<f32>(to, halfToFloat(load<u16>(from)));
}
