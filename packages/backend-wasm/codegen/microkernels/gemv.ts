/**
 * Templates of GEMV microkernels: one or three vectors times rows of f32, one, two or four times rows of f16. All but `gemv4x1` add in
 * the same order, so that a token has the same bits alone and in a batch: four lanes per row, their sum, then single columns.
 */
import { accumulators, advance, file, load, names, splat32, store, times } from './emit.ts';

const rows = names('w', 4);
const each = (make: (row: string, index: number) => string): string => times(4, (i) => make(`w${i}`, i));
const joined = (make: (row: string, index: number) => string): string => rows.map(make).join(', ');

/** `numVectors` vectors times four rows of f32, with one or two accumulator chains. Each row of weights is loaded once for all vectors. */
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
    /** ${numVectors} vectors times four rows of f32, in ${numChains} accumulator chains per row; the sums go to \`to[vector][row]\`. */
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

/** Zero where the exponent is all ones or all zeros: an increment carries into the sign bit at most. */
const rank = (row: string): string => `v128.and(i16x8.add(v128.load(${row} + at), step), upper)`;
const floats = (address: string): string => `normalHalves(v128.load16x4_s(${address}), mask, offset)`;

/**
 * One vector times four rows of f16, or several times two. The main loop converts only normal numbers, which saves registers; other
 * columns are added in their place, so that a row has the same bits in groups of two and of four.
 */
function gemvF16(numVectors: number): string {
  const [numRows, vectors, name] =
    numVectors === 1 ? [4, ['x0'], 'gemvF16'] : [2, names('x', numVectors), `gemvF16x${numVectors}`];
  const ofRows = (make: (j: number) => string): string[] => Array.from({ length: numRows }, (_, j) => make(j));
  const ofEach = (make: (t: number) => string): string => times(numVectors, make);
  const sums = ofRows((j) => `s${j}`).flatMap((row) => names(row, numVectors));
  const sum = (t: number, of: (j: number) => string): string => ofRows((j) => `s${j}${t} = ${of(j)};`).join('');
  const padded = (make: (j: number) => string): string => [...ofRows(make), '0', '0'].slice(0, 4).join(', ');
  const half = (at: number): string => `{
    ${ofRows((j) => `const f${j} = ${floats(`w${j} + at + ${at}`)};`).join('')}
    ${ofEach((t) => `{ const v = ${load(`x${t} + (at << 1)`, 2 * at)}; ${sum(t, (j) => `fma(f${j}, v, s${j}${t})`)} }`)} }`;
  return `
  /** ${numVectors} vectors times ${numRows} rows of f16, to \`to[vector][4]\`; a slow path adds columns that are not normal numbers. */
  export function ${name}(${vectors.join(': usize, ')}: usize, ${ofRows((j) => `w${j}: usize`).join(', ')}, count: i32, to: usize): void {
    const mask = halfMask(); const offset = halfOffset(); const step = leastNormal(); const upper = upperExponent();
    ${accumulators(sums, 'f32x4.splat(0)')}
    const end = (<usize>(count & ~7)) << 1;
    for (let at: usize = 0; at < end; at += 16) {
      for (; at < end; at += 16) {
        if (!i16x8.all_true(${ofRows((j) => rank(`w${j}`)).reduce((all, each) => `i16x8.min_u(${all}, ${each})`)})) break;
        ${half(0)} ${half(8)}
      }
      if (at === end) break; ${ofEach((t) => sum(t, (j) => `addCarefully(w${j} + at, x${t} + (at << 1), s${j}${t})`))}
    }
    ${ofEach((t) => `let t${t} = f32x4(${padded((j) => `sum4(s${j}${t})`)});`)}
    for (let at = end; at < (<usize>count) << 1; at += 2) {
      const column = f32x4(${padded((j) => `halfToFloat(load<u16>(w${j} + at))`)});
      ${ofEach((t) => `t${t} = fma(column, v128.load32_splat(x${t} + (at << 1)), t${t});`)}
    }
    ${ofEach((t) => (numRows === 4 ? store('to', `t${t}`) : `v128.store64_lane(to, t${t}, 0, ${16 * t});`))}
  }`;
}

const carefully = `
  /** Adds the products of eight columns, whether or not they are normal. */
  function addCarefully(w: usize, x: usize, sum: v128): v128 {
    sum = fma(halfToFloat4(v128.load16x4_u(w)), v128.load(x), sum);
    return fma(halfToFloat4(v128.load16x4_u(w, 8)), v128.load(x, 16), sum);
  }`;

const imports = `
  import { halfMask, halfOffset, leastNormal, upperExponent } from '../simd/constants.generated';
  import { fma, halfToFloat, halfToFloat4, normalHalves, sum4 } from '../simd/vector';`;

const kernels = [
  gemvF32('gemv4x1', 1, 2),
  gemvF32('gemv4x1InOrder', 1, 1),
  gemvF32('gemv4x3', 3, 1),
  ...[1, 2, 4].map(gemvF16),
  carefully,
];

export const gemvFiles: ReadonlyMap<string, string> = new Map([
  ['gemm/gemv.generated.ts', file('GEMV microkernels in f32.', imports, kernels)],
]);
