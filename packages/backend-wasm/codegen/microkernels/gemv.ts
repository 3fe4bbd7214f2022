/**
 * Templates of GEMV microkernels: one or three vectors times four rows of f32 or f16. All but `gemv4x1` add in the same order, so that a
 * token has the same bits alone and with others: four lanes per row, their sum, then single columns.
 */
import { accumulators, advance, file, load, names, splat32, store, times } from './emit.ts';

const rows = names('w', 4);
const parameters = `x: usize, ${rows.join(': usize, ')}: usize, count: i32`;
const each = (make: (row: string, index: number) => string): string => times(4, (i) => make(`w${i}`, i));
const joined = (make: (row: string, index: number) => string): string => rows.map(make).join(', ');

/** `numVectors` vectors times four rows of f32, with one or two chains of sums. Each row of weights is loaded once for all of them. */
function gemvF32(name: string, numVectors: 1 | 3, numChains: 1 | 2): string {
  const vectors = names('x', numVectors);
  const ofEach = (make: (t: number) => string): string => times(numVectors, make);
  const second = numChains - 1;
  const sums = (chain: number): readonly string[] => rows.flatMap((_, j) => names(`s${chain}${j}`, numVectors));
  const columns = (at: number, s: string): string => `
    ${ofEach((t) => `const v${t} = ${load(`x${t}`, at)};`)}
    ${each((w, j) => `${j === 0 ? 'let ' : ''}w = ${load(w, at)}; ${ofEach((t) => `${s}${j}${t} = fma(w, v${t}, ${s}${j}${t});`)}`)}`;
  const whole = (sum: string): string => (second === 0 ? `sum4(s0${sum})` : `sum4(f32x4.add(s0${sum}, s1${sum}))`);
  return `
    /** ${numVectors} vectors times four rows of f32, in ${numChains} chains per row; the sums go to \`to[vector][row]\`. */
    export function ${name}(${vectors.join(': usize, ')}: usize, ${rows.join(': usize, ')}: usize, count: i32, to: usize): void {
      ${accumulators([...sums(0), ...(second === 0 ? [] : sums(1))], 'f32x4.splat(0)')}
      let i = count;
      for (; i >= 8; i -= 8) { { ${columns(0, 's0')} } { ${columns(16, `s${second}`)} } ${advance([...vectors, ...rows], 32)} }
      ${ofEach((t) => `let t${t} = f32x4(${joined((_, j) => whole(`${j}${t}`))});`)}
      for (; i > 0; i--) {
        const w = f32x4(${joined((w) => `load<f32>(${w})`)});
        ${ofEach((t) => `t${t} = fma(w, ${splat32(`x${t}`)}, t${t});`)}
        ${advance([...vectors, ...rows], 4)}
      }
      ${ofEach((t) => store('to', `t${t}`, 16 * t))}
    }`;
}

/** Zero where the exponent is all ones or all zeros; incrementing it carries no further than the sign. */
const rank = (row: string): string => `v128.and(i16x8.add(v128.load(${row} + at), step), upper)`;
const floats = (address: string): string => `normalHalves(v128.load16x4_s(${address}), mask, offset)`;

const gemvF16 = `
  /**
   * A shift and an addition to the exponent turn a normal binary16 into an f32. Eight columns of four rows that contain a zero,
   * denormal, Inf or NaN leave the main loop for a general conversion, whose code would take its registers.
   */
  export function gemvF16(${parameters}): v128 {
    const mask = halfMask();
    const step = leastNormal(); // the lowest bit of the exponent
    const upper = upperExponent();
    const offset = halfOffset();
    ${accumulators(names('s', 4), 'f32x4.splat(0)')}
    const end = (<usize>(count & ~7)) << 1;
    for (let at: usize = 0; at < end; at += 16) {
      for (; at < end; at += 16) {
        const least = i16x8.min_u(i16x8.min_u(${rank('w0')}, ${rank('w1')}), i16x8.min_u(${rank('w2')}, ${rank('w3')}));
        if (!i16x8.all_true(least)) break;
        const low = v128.load(x + (at << 1));
        const high = v128.load(x + (at << 1), 16);
        ${each((w, j) => `s${j} = fma(${floats(`${w} + at`)}, low, s${j});`)}
        ${each((w, j) => `s${j} = fma(${floats(`${w} + at + 8`)}, high, s${j});`)}
      }
      if (at === end) break;
      ${each((w, j) => `s${j} = addCarefully(${w} + at, x + (at << 1), s${j});`)}
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

const imports = `
  import { halfMask, halfOffset, leastNormal, upperExponent } from '../simd/constants.generated';
  import { fma, halfToFloat, halfToFloat4, normalHalves, sum4 } from '../simd/vector';`;

export const gemvFiles: ReadonlyMap<string, string> = new Map([
  [
    'gemm/gemv.generated.ts',
    file('GEMV microkernels in f32.', imports, [
      gemvF32('gemv4x1', 1, 2),
      gemvF32('gemv4x1InOrder', 1, 1),
      gemvF32('gemv4x3', 3, 1),
      gemvF16,
    ]),
  ],
]);
