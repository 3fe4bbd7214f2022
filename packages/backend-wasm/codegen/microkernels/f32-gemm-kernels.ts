/** f32 GEMM microkernels: `gemmMRxNR` for rows, `gemmTMRxNR` for a transposed matrix, `igemm...` for indirect rows. */
import { addressIn, advance, file, load, names, store, times } from './emit.ts';
import * as left from './f32-gemm.ts';
import { gemm, type Tile } from './f32-gemm.ts';

const single = { steps: 1, form: 'single' } as const;
const fourSteps = { steps: 4, form: 'exits' } as const;
const twoSteps = { steps: 2, form: 'tail' } as const;

const gemm4x8: Tile = {
  name: 'gemm4x8',
  doc: '`c[4, 8] (+)= w[4, K] x[K, 8]`, the rows of w at four addresses.',
  ...{ rows: 4, vectors: 2, left: left.rowsAt(4), start: 'add', unroll: twoSteps },
};

const gemmT4x8: Tile = {
  name: 'gemmT4x8',
  doc: '`c[4, 8] = c * factor[8] + w[K, 4]^T x[K, 8]`, the rows of w `stride` bytes apart.',
  ...{ rows: 4, vectors: 2, left: left.stridedColumns, start: 'scale', unroll: single },
};

const dense: readonly Tile[] = [
  gemm4x8,
  gemmT4x8,
  {
    name: 'gemm6x8',
    doc: '`c[6, 8] = w[6, K] x[K, 8]`, the rows of w `stride` bytes apart.',
    ...{ rows: 6, vectors: 2, left: left.stridedRows(6), start: 'zero', unroll: fourSteps },
  },
  {
    name: 'gemmT6x8',
    doc: '`c[6, 8] = c * factor[8] + w[K, 6]^T x[K, 8]`, the rows of w `stride` bytes apart.',
    ...{ rows: 6, vectors: 2, left: left.stridedColumns, start: 'scale', unroll: fourSteps },
  },
  {
    name: 'gemm8x4',
    doc: '`c[8, 4] = w[8, K] x[K, 4]`, the rows of w `stride` bytes apart; rows from `numRows` on repeat the last one.',
    ...{ rows: 8, vectors: 1, left: left.clampedRows(8), start: 'zero', unroll: twoSteps },
  },
  {
    name: 'gemmT8x4',
    doc: '`c[8, 4] = c * factor[4] + w[K, 8]^T x[K, 4]`, the rows of w `stride` bytes apart.',
    ...{ rows: 8, vectors: 1, left: left.stridedColumns, start: 'scale', unroll: single },
  },
];

const indirect: readonly Tile[] = [
  {
    name: 'igemm6x8',
    doc: '`c[6, 8] = w[6, K] x[K, 8]`, the addresses of the rows of w in a list.',
    ...{ rows: 6, vectors: 2, left: left.indirectRows(6), start: 'zero', unroll: fourSteps },
  },
  {
    name: 'igemm4x8Split',
    doc: '`c[4, 8] = w[4, K] x[K, 8]`, columns 0 to 3 with the rows of w in `lows`, the others with those in `highs`.',
    ...{ rows: 4, vectors: 2, left: left.splitRows(4), start: 'zero', unroll: single },
  },
  {
    name: 'igemmT6x8',
    doc: '`c[6, 8] = w[K, 6]^T x[K, 8]`, rows of w by address; `splits` more differ between halves of the columns.',
    ...{ rows: 6, vectors: 2, left: left.indirectColumns, start: 'zero', isSplit: true },
    unroll: { steps: 4, form: 'whole' },
  },
  {
    name: 'igemmT4x8',
    doc: '`c[4, 8] = w[K, 4]^T x[K, 8]`, as `igemmT6x8`.',
    ...{ rows: 4, vectors: 2, left: left.indirectColumns, start: 'zero', isSplit: true, unroll: single },
  },
];

/** A kernel that also dequantizes f16 for a later GEMM, eight numbers in two steps; runs `plain` if fewer are left. */
function dequantizing(tile: Tile, plain: string): string {
  return gemm({
    ...tile,
    name: `${tile.name}Dequantizing`,
    unroll: { steps: 8, form: 'exits' },
    prologue: `
      const count = depth << 2;
      if (pending < count || (depth & 7) !== 0) { ${plain}; return; }
      const mask = swizzledMask();
      const offset = swizzledOffset();
      const least = leastRank();
      let from = source;
      let to = target;
      let rank = i32x4.splat(0);`,
    beside: (step) => (step % 2 === 0 ? '' : dequantizeEight(step >> 1)),
    advanceBeside: 'from += 64; to += 128;',
    epilogue: 'completeBeside(count, rank);',
  });
}

function dequantizeEight(index: number): string {
  return `
    ${index === 0 ? 'let ' : ''}h = ${load('from', 16 * index)};
    ${store('to', 'even4(h, mask, offset)', 32 * index)}
    ${store('to', 'odd4(h, mask, offset)', 32 * index + 16)}
    rank = i16x8.max_u(rank, rankOf(h, least));`;
}

const products = (vectors: number): string =>
  times(vectors, (v) => times(4, (i) => `s${i} = fma(${load(`q${i}`, 16 * v)}, ${load(`k${i}`, 16 * v)}, s${i});`));
const operands = [...names('q', 4), ...names('k', 4)];

const indirectDots = `
  /** Pairwise dot products of the vectors at the addresses in \`queries\` and \`keys\`; of length 4 n. */
  export function idot4(queries: usize, keys: usize, length: i32): v128 {
    ${times(4, (i) => `let q${i} = ${addressIn('queries', i)};`)}
    ${times(4, (i) => `let k${i} = ${addressIn('keys', i)};`)}
    ${times(4, (i) => `let s${i} = ${i === 0 ? 'f32x4.splat(0)' : 's0'};`)}
    let left = length;
    for (; left >= 16; left -= 16) { ${products(4)} ${advance(operands, 64)} }
    for (; left > 0; left -= 4) { ${products(1)} ${advance(operands, 16)} }
    return laneSums(s0, s1, s2, s3);
  }`;

const f16Imports = `
  import { even4, leastRank, odd4, rankOf, swizzledMask, swizzledOffset } from '../quant/swizzled-f16';
  import { fma } from '../simd/vector';
  import { completeBeside, pending, source, target } from './dequantize-beside';
  import { gemm4x8, gemmT4x8 } from './f32-gemm.generated';`;
const beside: readonly string[] = [
  dequantizing(
    { ...gemm4x8, start: 'zero', doc: '`gemm4x8` that overwrites c and dequantizes `4 K` numbers.' },
    'gemm4x8(c, w0, w1, w2, w3, x, depth, false)',
  ),
  dequantizing(
    { ...gemmT4x8, doc: '`gemmT4x8` that dequantizes `4 K` numbers.' },
    'gemmT4x8(c, w, stride, x, depth, lowFactor, highFactor)',
  ),
];

export const f32GemmFiles: ReadonlyMap<string, string> = new Map([
  [
    'gemm/f32-gemm.generated.ts',
    file(
      'GEMM microkernels in f32; see the template for how they work.',
      "import { fma } from '../simd/vector';",
      dense.map(gemm),
    ),
  ],
  [
    'gemm/f32-igemm.generated.ts',
    file(
      'Indirect GEMM microkernels in f32: rows of the left-hand side have arbitrary addresses.',
      "import { fma, laneSums } from '../simd/vector';",
      [...indirect.map(gemm), indirectDots],
    ),
  ],
  [
    'gemm/f16-gemm.generated.ts',
    file(
      'GEMM microkernels in f32 that also dequantize f16 numbers for a later GEMM; see dequantize-beside.ts.',
      f16Imports,
      beside,
    ),
  ],
]);
