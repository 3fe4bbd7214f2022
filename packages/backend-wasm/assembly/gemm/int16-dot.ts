/** qgemv of unpacked groups (see unpacked-groups.ts) with 16-bit dot products, for builds without relaxed SIMD. */
import { addNeighbors, fma } from '../simd/vector';
import { META_BYTES, META_SUM, UNPACKED_BYTES, FIRST_FLOATS, SECOND_FLOATS } from '../runtime/layout.generated';

/** One group times one token; returns `sums` plus the blocks. With `halves`, each half of a block has its own scales. */
export function qgemvInt16(
  group: usize,
  numBlocks: i32,
  codes16: usize,
  meta: usize,
  initial: usize,
  halves: bool,
  sums: v128,
): v128 {
  for (let block = 0; block < numBlocks; block++, group += UNPACKED_BYTES, codes16 += 64, meta += META_BYTES) {
    const d = v128.load32_splat(meta);
    if (halves) {
      const first = products(group, codes16, 4);
      const second = products(group + 64, codes16 + 32, 4);
      const a = i32x4.add(first, v128.load32_splat(meta + initial));
      const b = i32x4.add(second, v128.load32_splat(meta + initial, 4));
      sums = fma(f32x4.convert_i32x4_s(a), f32x4.mul(v128.load(group, FIRST_FLOATS), d), sums);
      sums = fma(f32x4.convert_i32x4_s(b), f32x4.mul(v128.load(group, SECOND_FLOATS), d), sums);
    } else {
      const a = i32x4.add(products(group, codes16, 8), v128.load32_splat(meta + initial));
      sums = fma(f32x4.convert_i32x4_s(a), f32x4.mul(v128.load(group, FIRST_FLOATS), d), sums);
      sums = fma(v128.load(group, SECOND_FLOATS), v128.load32_splat(meta, META_SUM), sums);
    }
  }
  return sums;
}

/** Integer dot products of four rows over `count` vectors of codes, four columns each. */
function products(codes: usize, codes16: usize, count: i32): v128 {
  let low = i32x4.splat(0);
  let high = low;
  for (let j = 0; j < count; j++, codes += 16, codes16 += 8) {
    const x = v128.load64_splat(codes16);
    const c = v128.load(codes);
    low = i32x4.add(low, i32x4.dot_i16x8_s(i16x8.extend_low_i8x16_u(c), x));
    high = i32x4.add(high, i32x4.dot_i16x8_s(i16x8.extend_high_i8x16_u(c), x));
  }
  return addNeighbors(low, high);
}
