/**
 * Templates of qgemm microkernels: one block of 32 columns of four interleaved rows, with its codes unpacked to bytes,
 * times many tokens of 8-bit activations, whose codes are contiguous, as are their metadata. See int8-dot.ts for how
 * 8-bit products are summed.
 */
import { metaBytes } from '../memory-layout.ts';
import { advance, file, load, splat32, store, times } from './emit.ts';

interface Block {
  readonly name: string;
  readonly doc: string;
  /** How integer sums are scaled: one scale per row; a scale and an offset; a scale for each half of the columns. */
  readonly scales: 'one' | 'offset' | 'halves';
  /**
   * `direct`: two chains of dot products. `pairs`: sums of pairs in 16 bits, which several vectors fit in.
   * `signMagnitude`: two chains, with activations as magnitudes [32] and signs [32].
   */
  readonly dot: 'direct' | 'pairs' | 'signMagnitude';
}

const blocks: readonly Block[] = [
  { name: 'qgemmScaled', doc: 'A scale per row.', scales: 'one', dot: 'direct' },
  { name: 'qgemmOffset', doc: 'A scale and an offset per row.', scales: 'offset', dot: 'direct' },
  { name: 'qgemmHalves', doc: 'A scale for each half of the columns.', scales: 'halves', dot: 'direct' },
  {
    name: 'qgemmScaledMaddubs',
    doc: 'A scale per row, codes of four bits by maddubs: `16 * 15 * 127 < 2^15`.',
    ...{ scales: 'one', dot: 'pairs' },
  },
  {
    name: 'qgemmOffsetMaddubs',
    doc: 'A scale and an offset per row, codes of five bits by maddubs: `8 * 31 * 127 < 2^15`.',
    ...{ scales: 'offset', dot: 'pairs' },
  },
  {
    name: 'qgemmHalvesMaddubs',
    doc: 'A scale for each half of the columns, codes of six bits by maddubs: `4 * 63 * 127 < 2^15`.',
    ...{ scales: 'halves', dot: 'pairs' },
  },
  {
    name: 'qgemmSignMagnitude<T>',
    doc: 'A scale per row, codes of eight bits, activations as magnitudes and signs.',
    ...{ scales: 'one', dot: 'signMagnitude' },
  },
];

/** The eight dot products of a token, in the chains a and b. */
function chains({ scales, dot }: Block, token: number): string {
  const base = metaBytes * token;
  const declare = token === 0 ? 'let ' : '';
  const initial = dot === 'direct' ? splat32('start', base) : splat32('meta', 'META_START_Q8');
  return `
    ${declare}a = ${initial};
    ${declare}b = ${scales === 'halves' ? splat32('start', base + 4) : 'i32x4.splat(0)'};
    ${times(8, (j) => {
      const chain = (scales === 'halves' ? j < 4 : j % 2 === 0) ? 'a' : 'b';
      const x = splat32('x', base + 4 * j);
      if (dot === 'direct') return `${chain} = dot(${x}, u${j}, ${chain});`;
      return `${chain} = dotSignMagnitude<T>(${x}, ${splat32('x', 32 + 4 * j)}, u${j}, ${chain}, ones);`;
    })}`;
}

/** The same by pairs of products: 16-bit sums as long as they fit, then 32-bit sums. */
function pairChains(scales: Block['scales']): string {
  const product = (j: number): string => `pairs(${splat32('x', 4 * j)}, u${j})`;
  if (scales === 'halves') {
    return `
      let a = ${splat32('meta', 'META_MINUS_32')};
      let b = ${splat32('meta', 'META_MINUS_32 + 4')};
      ${times(4, (j) => {
        const chain = j < 2 ? 'a' : 'b';
        return `${chain} = addPairs(${chain}, i16x8.add(${product(2 * j)}, ${product(2 * j + 1)}), ones);`;
      })}`;
  }
  const ofOne = `addPairs(${splat32('meta', 'META_MINUS_8')}, i16x8.add(a, b), ones)`;
  return `
    let a = ${product(0)};
    let b = ${product(1)};
    ${times(3, (j) => `a = i16x8.add(a, ${product(2 * j + 2)}); b = i16x8.add(b, ${product(2 * j + 3)});`)}
    const blocks = ${scales === 'one' ? ofOne : 'addPairs(addPairs(i32x4.splat(0), a, ones), b, ones)'};`;
}

/** Adds the chains, times scales, to the sums of a token. */
function addToSums({ scales, dot }: Block, token: number): string {
  const base = metaBytes * token;
  const declare = token === 0 ? 'let ' : '';
  const old = load('sums', 16 * token);
  const d = splat32('meta', base);
  const add = (sums: string, scale: string, to: string): string =>
    `fma(f32x4.convert_i32x4_s(${sums}), f32x4.mul(${scale}), ${to})`;
  if (scales === 'halves') {
    return `
      ${declare}d = ${d};
      ${declare}s = ${add('a', 'scale, d', old)};
      ${store('sums', add('b', 'other, d', 's'), 16 * token)}`;
  }
  const products = dot === 'pairs' ? 'blocks' : 'i32x4.add(a, b)';
  const sumAt = base === 0 ? 'META_SUM' : `${base} + META_SUM`;
  return `
    ${scales === 'offset' ? `${declare}s = fma(offset, ${splat32('meta', sumAt)}, ${old});` : ''}
    ${store('sums', add(products, `scale, ${d}`, scales === 'offset' ? 's' : old), 16 * token)}`;
}

const loadSecond = (name: string): string => `const ${name} = ${load('p', 'SECOND_FLOATS')};`;
const second = { one: '', offset: loadSecond('offset'), halves: loadSecond('other') };

/** One block of a group times tokens; adds to `sums[token][4]`. */
function blockTimesTokens(kind: Block): string {
  const isDirect = kind.dot === 'direct';
  const unrolled = isDirect ? 4 : 1;
  const codeBytes = kind.dot === 'signMagnitude' ? 64 : 32;
  const start = isDirect ? 'start: usize, ' : '';
  return `
    /** ${kind.doc} */
    export function ${kind.name}(
      p: usize, scale: v128, x: usize, meta: usize, ${start}sums: usize, numTokens: i32): void {
      ${isDirect ? '' : 'const ones = onePairs();'}
      ${times(8, (j) => `const u${j} = ${load('p', 16 * j)};`)}
      ${second[kind.scales]}
      for (let t = 0; t < numTokens; t += ${unrolled}) {
        ${times(
          unrolled,
          (token) => `
            ${kind.dot === 'pairs' ? pairChains(kind.scales) : chains(kind, token)}
            ${addToSums(kind, token)}`,
        )}
        x += ${codeBytes * unrolled};
        ${advance(isDirect ? ['meta', 'start'] : ['meta'], metaBytes * unrolled)}
        sums += ${16 * unrolled};
      }
    }`;
}

const imports = `
  import { onePairs } from '../simd/constants.generated';
  import { fma } from '../simd/vector';
  import { META_MINUS_32, META_MINUS_8, META_START_Q8, META_SUM, SECOND_FLOATS } from '../runtime/layout.generated';
  import { addPairs, dot, dotSignMagnitude, pairs } from '../quant/int8-dot';`;

export const qgemmFiles: ReadonlyMap<string, string> = new Map([
  [
    'gemm/qgemm.generated.ts',
    file(
      'qgemm microkernels: one block of four interleaved rows times many tokens.',
      imports,
      blocks.map(blockTimesTokens),
    ),
  ],
]);
