/**
 * Kernels that measure the machine's peaks from WebAssembly: the probes of the backend, compiled with and without
 * relaxed SIMD, and the inner loop of a GEMM.
 */
import { fma, sum4 } from '../../../packages/backend-wasm/assembly/simd/vector';

export { integerDots, multiplyAdds, readMemory } from '../../../packages/backend-wasm/assembly/roofline/loops';

/** Writes every byte of `[begin, begin + sizeBytes)`, so that all pages are committed. */
export function fill(begin: usize, sizeBytes: usize): void {
  memory.fill(begin, 1, sizeBytes);
}

/**
 * The inner loop of a GEMM as in the kernels: a 4x8 register tile over panels of 128 steps that stay in the L1 cache. 8
 * multiply-adds of 4 lanes per step.
 */
export function f32Tile(data: usize, passes: i32): i32 {
  const panelB = data + 128 * 16;
  let total = f32x4.splat(0);
  for (let pass = 0; pass < passes; pass++) {
    let c00 = f32x4.splat(0);
    let c01 = c00;
    let c10 = c00;
    let c11 = c00;
    let c20 = c00;
    let c21 = c00;
    let c30 = c00;
    let c31 = c00;
    for (let k: usize = 0; k < 128; k++) {
      const a = data + (k << 4);
      const b = panelB + (k << 5);
      const b0 = v128.load(b);
      const b1 = v128.load(b, 16);
      const a0 = v128.load32_splat(a, 0);
      c00 = fma(a0, b0, c00);
      c01 = fma(a0, b1, c01);
      const a1 = v128.load32_splat(a, 4);
      c10 = fma(a1, b0, c10);
      c11 = fma(a1, b1, c11);
      const a2 = v128.load32_splat(a, 8);
      c20 = fma(a2, b0, c20);
      c21 = fma(a2, b1, c21);
      const a3 = v128.load32_splat(a, 12);
      c30 = fma(a3, b0, c30);
      c31 = fma(a3, b1, c31);
    }
    const upper = f32x4.add(f32x4.add(c00, c01), f32x4.add(c10, c11));
    const lower = f32x4.add(f32x4.add(c20, c21), f32x4.add(c30, c31));
    total = f32x4.add(total, f32x4.add(upper, lower));
  }
  return <i32>sum4(total);
}
