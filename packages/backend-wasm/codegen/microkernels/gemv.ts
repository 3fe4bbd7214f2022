/** Templates of GEMV microkernels: one vector times four rows of f32 or f16. */
import { accumulators, advance, file, load, names, times } from './emit.ts';

const rows = names('w', 4);
const parameters = `x: usize, ${rows.join(': usize, ')}: usize, count: i32`;
const each = (make: (row: string, index: number) => string): string => times(4, (i) => make(`w${i}`, i));
const joined = (make: (row: string, index: number) => string): string => rows.map(make).join(', ');

const gemvF32 = `
  /** Two chains of multiply-adds per row hide the latency. */
  function gemvF32(${parameters}): v128 {
    ${accumulators(names('s', 8), 'f32x4.splat(0)')}
    let i = count;
    for (; i >= 8; i -= 8) {
      let v = v128.load(x);
      ${each((w, j) => `s${j} = fma(v, ${load(w)}, s${j});`)}
      v = v128.load(x, 16);
      ${each((w, j) => `s${j + 4} = fma(v, ${load(w, 16)}, s${j + 4});`)}
      ${advance(['x', ...rows], 32)}
    }
    ${each((_, j) => `let t${j} = sum4(f32x4.add(s${j}, s${j + 4}));`)}
    for (; i > 0; i--) {
      const v = load<f32>(x);
      ${each((w, j) => `t${j} += v * load<f32>(${w});`)}
      ${advance(['x', ...rows], 4)}
    }
    return f32x4(t0, t1, t2, t3);
  }`;

/** Zero where the exponent is all ones or all zeros; incrementing it carries no further than the sign. */
const rank = (row: string): string => `v128.and(i16x8.add(v128.load(${row} + at), step), upper)`;
const floats = (address: string): string => `normalHalves(v128.load16x4_s(${address}), mask, offset)`;

const gemvF16 = `
  /** Bytes of a row that a word of bits covers: each bit marks eight columns with a number that is not normal. */
  const SEGMENT: usize = 64 * 16;

  /**
   * A shift and an addition to the exponent turn a normal binary16 into an f32. Zeros, denormals, Inf and NaN are
   * detected for eight columns of four rows at a time; these columns are skipped, and added later after a general
   * conversion, whose code would take the registers of the main loop.
   */
  function gemvF16(${parameters}): v128 {
    const mask = halfMask();
    const step = leastNormal(); // the lowest bit of the exponent
    const upper = upperExponent();
    const offset = halfOffset();
    ${accumulators(names('s', 4), 'f32x4.splat(0)')}
    const end = (<usize>(count & ~7)) << 1;
    for (let begin: usize = 0; begin < end; begin += SEGMENT) {
      const stop = min<usize>(end, begin + SEGMENT);
      let odd: u64 = 0;
      for (let at = begin; at < stop; at += 16) {
        const least = i16x8.min_u(i16x8.min_u(${rank('w0')}, ${rank('w1')}), i16x8.min_u(${rank('w2')}, ${rank('w3')}));
        if (!i16x8.all_true(least)) {
          odd |= (<u64>1) << (<u64>((at - begin) >> 4));
          continue;
        }
        const low = v128.load(x + (at << 1));
        const high = v128.load(x + (at << 1), 16);
        ${each((w, j) => `s${j} = fma(${floats(`${w} + at`)}, low, s${j});`)}
        ${each((w, j) => `s${j} = fma(${floats(`${w} + at + 8`)}, high, s${j});`)}
      }
      for (; odd !== 0; odd &= odd - 1) {
        const at = begin + ((<usize>ctz(odd)) << 4);
        ${each((w, j) => `s${j} = addCarefully(${w} + at, x + (at << 1), s${j});`)}
      }
    }
    let sums = f32x4(${joined((_, j) => `sum4(s${j})`)});
    for (let at = end; at < (<usize>count) << 1; at += 2) {
      const column = f32x4(${joined((w) => `halfToFloat(load<u16>(${w} + at))`)});
      sums = fma(column, v128.load32_splat(x + (at << 1)), sums);
    }
    return sums;
  }

  /** Adds the products of eight columns, whether or not they are normal. */
  function addCarefully(w: usize, x: usize, sum: v128): v128 {
    sum = fma(halfToFloat4(v128.load16x4_u(w)), v128.load(x), sum);
    return fma(halfToFloat4(v128.load16x4_u(w, 8)), v128.load(x, 16), sum);
  }`;

const gemv4 = `
  /** Dot products of one vector with four rows of f32 or f16. */
  export function gemv4(dtype: i32, ${parameters}): v128 {
    return dtype === F16 ? gemvF16(x, ${rows.join(', ')}, count) : gemvF32(x, ${rows.join(', ')}, count);
  }`;

const imports = `
  import { F16 } from '../quant/dtypes.generated';
  import { halfMask, halfOffset, leastNormal, upperExponent } from '../simd/constants.generated';
  import { fma, halfToFloat, halfToFloat4, normalHalves, sum4 } from '../simd/vector';`;

export const gemvFiles: ReadonlyMap<string, string> = new Map([
  ['gemm/gemv.generated.ts', file('GEMV microkernels in f32.', imports, [gemv4, gemvF32, gemvF16])],
]);
