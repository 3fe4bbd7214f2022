/**
 * Templates of qgemv microkernels: one token of 8-bit activations times groups of four interleaved rows. Several groups
 * are streamed concurrently, because a single stream of weights leaves much of the memory bandwidth unused;
 * activations are loaded once for all of them. A single group hides latency with two chains of dot products instead.
 */
import { streams } from '../memory-layout.ts';
import { accumulators, file, load, names, splat32, store, times } from './emit.ts';

/** A weight format; a block of a group is at `q`. */
interface GroupFormat {
  readonly name: string;
  readonly doc: string;
  /** Constants that stay in registers. */
  readonly constants: string;
  readonly blockBytes: string;
  readonly columns: number;
  readonly codeBytes: number;
  readonly metaBytes: string;
  /** Loads of activations that all groups share. */
  readonly activations: string;
  /** Chains of dot products per group when several are streamed: usdot, a single instruction, needs only one. */
  readonly numChains: 0 | 1 | 2;
  /** Adds a block to an accumulator with `numChains` chains. */
  add(accumulator: string, numChains: number): string;
}

/** Alternates dot products between the chains and adds their sums, times the scales of the rows, to the accumulator. */
function scaledProducts(
  accumulator: string,
  numChains: number,
  count: number,
  product: (j: number, chain: string) => string,
): string {
  const chainOf = (j: number): string => (j % numChains === 0 ? 'a' : 'b');
  return `
    scale = f32x4.mul(scales4(q, mask, factor), d);
    a = initial;
    ${numChains === 2 ? 'b = i32x4.splat(0);' : ''}
    ${times(count, (j) => `${chainOf(j)} = ${product(j, chainOf(j))};`)}
    ${accumulator} = fma(f32x4.convert_i32x4_s(${numChains === 2 ? 'i32x4.add(a, b)' : 'a'}), scale, ${accumulator});`;
}

const blockConstants = 'const mask = halfMask(); const factor = halfFactor();';
const ones = 'const ones = onePairs();';
const blockMeta = (start: string): string => `
  const initial = ${splat32('meta', start)};
  const d = ${splat32('meta')};`;

/** q8_0 on machines whose dot product is exact for unsigned codes above 127. */
const q8: GroupFormat = {
  ...{ name: 'Q8', doc: 'q8_0 by usdot', blockBytes: 'Q8_0_BLOCK_BYTES * GROUP_SIZE' },
  ...{ columns: 32, codeBytes: 32, metaBytes: 'META_BYTES', constants: blockConstants, numChains: 1 },
  activations: `${times(8, (j) => `const u${j} = ${splat32('x', 4 * j)};`)} ${blockMeta('META_START_Q8')}`,
  add: (accumulator, numChains) =>
    scaledProducts(accumulator, numChains, 8, (j, chain) => `dot(u${j}, ${load('q', 8 + 16 * j)}, ${chain})`),
};

/** q8_0 on other machines: activations are magnitudes [32] and signs [32]. */
const q8SignMagnitude: GroupFormat = {
  ...{ name: 'Q8SignMagnitude<T>', doc: 'q8_0 by maddubs or generic dot products' },
  ...{ blockBytes: 'Q8_0_BLOCK_BYTES * GROUP_SIZE', columns: 32, codeBytes: 64, metaBytes: 'META_BYTES' },
  ...{ constants: `${blockConstants} ${ones}`, numChains: 2 },
  activations: blockMeta('META_START_Q8'),
  add: (accumulator, numChains) =>
    scaledProducts(accumulator, numChains, 8, (j, chain) => {
      const [magnitudes, signs] = [splat32('x', 4 * j), splat32('x', 32 + 4 * j)];
      return `dotSignMagnitude<T>(${magnitudes}, ${signs}, ${load('q', 8 + 16 * j)}, ${chain}, ones)`;
    }),
};

/** q4_0: columns 4 j in the low nibbles of a vector, 16 + 4 j in the high ones. */
const q4: GroupFormat = {
  ...{ name: 'Q4<T>', doc: 'q4_0', blockBytes: 'Q4_0_BLOCK_BYTES * GROUP_SIZE' },
  ...{ columns: 32, codeBytes: 32, metaBytes: 'META_BYTES' },
  ...{ constants: `${blockConstants} const low = nibbleMask(); ${ones}`, numChains: 1 },
  activations: `
    ${times(4, (j) => `const u${j} = ${splat32('x', 4 * j)};`)}
    ${times(4, (j) => `const v${j} = ${splat32('x', 16 + 4 * j)};`)}
    ${blockMeta('META_MINUS_8')}`,
  add: (accumulator, numChains) =>
    scaledProducts(accumulator, numChains, 2, (j, chain) => {
      const [i, k] = [2 * j, 2 * j + 1];
      const codes = `${load('q', 8 + 16 * i)}, ${load('q', 8 + 16 * k)}`;
      return `dotNibbles<T>(${codes}, u${i}, u${k}, v${i}, v${k}, low, ${chain}, ones)`;
    }),
};

/** K-quants, super-blocks of 256 columns. Each has its own loops: sharing one, which chooses per block, cost q6_K up to a fifth in V8. */
const superBlocks = ['Q4_K', 'Q5_K', 'Q6_K'].map((dtype): GroupFormat => {
  const name = dtype.replace('_', '');
  return {
    ...{
      name: `${name}<T>`,
      doc: dtype.toLowerCase().replace('_k', '_K'),
      blockBytes: `bytesOf(${dtype}, 256) * GROUP_SIZE`,
    },
    ...{ columns: 256, codeBytes: 256, metaBytes: '8 * META_BYTES', constants: '', activations: '', numChains: 0 },
    add: (accumulator) => `${accumulator} = superBlock${name}<T>(q, x, meta, ${accumulator});`,
  };
});

/** One token times `groups` groups, `stride` bytes apart; sums go to `to[groups][4]`, or are returned for one group. */
function qgemv(format: GroupFormat, groups: number): string {
  const isSingle = groups === 1;
  const sums = names('s', groups);
  const numChains = isSingle && format.numChains > 0 ? 2 : format.numChains;
  const name = isSingle ? format.name : format.name.replace(/(<T>)?$/, `x${groups}$1`);
  const [stride, to, result] = isSingle ? ['', '', 'v128'] : ['stride: usize, ', ', to: usize', 'void'];
  return `
    /** ${format.doc}: ${isSingle ? 'one group' : `${groups} groups at once`}. */
    export function qgemv${name}(
      p: usize, ${stride}numInputs: i32, x: usize, meta: usize${to}): ${result} {
      ${format.constants}
      ${accumulators(sums, 'f32x4.splat(0)')}
      for (let left = numInputs >> ${Math.log2(format.columns)}; left > 0; left--) {
        ${format.activations}
        let q = p;
        ${['let scale: v128;', 'let a: v128;', 'let b: v128;'].slice(0, numChains === 0 ? 0 : 1 + numChains).join('\n')}
        ${times(groups, (i) => `${i === 0 ? '' : 'q += stride;'} ${format.add(`s${i}`, numChains)}`)}
        p += ${format.blockBytes};
        x += ${format.codeBytes};
        meta += ${format.metaBytes};
      }
      ${isSingle ? 'return s0;' : times(groups, (i) => store('to', `s${i}`, 16 * i))}
    }`;
}

/**
 * Four rows of a super-block of q4_K or q5_K: sums over the sub-blocks come first, then the multiplications by d and
 * dmin. With fifth bits, the loop over pairs of sub-blocks is unrolled, so that shifts are constants. Scales are loaded first: they are in
 * the first cache line, from which the processor prefetches.
 */
function superBlockK(name: string, hasFifths: boolean): string {
  const fifth = (sub: string): string => `fifthBit(bits, ${sub}, sixteen)`;
  const add = (sum: string, x: string, nibbles: string, sub: string): string => {
    const codes = hasFifths ? `v128.or(${nibbles}(v, low), ${fifth(sub)})` : `${nibbles}(v, low)`;
    return `${sum} = addProducts<T>(${x}, ${codes}, ${sum});`;
  };
  const vectors = (count: number, sub: string): string =>
    times(
      count,
      (j) => `
        ${j === 0 ? 'let ' : ''}v = ${load('codes', 16 * j)};
        ${hasFifths ? `${j === 0 ? 'let ' : ''}bits = ${load('fifths', 16 * j)};` : ''}
        ${add(j % 2 === 0 ? 'a' : 'c', splat32('x', 4 * j), 'lowNibbles', sub)}
        ${add(j % 2 === 0 ? 'b' : 'd', splat32('x', 32 + 4 * j), 'highNibbles', `${sub} + 1`)}`,
    );
  // unrolling further would spill registers
  const ofFiveBits = (sub: string): string => `
    let fifths = at + FIFTHS_AT_Q5_K;
    for (let j = 0; j < 4; j++) { ${vectors(2, sub)} codes += 32; fifths += 32; x += 8; }
    x += 32;`;
  const twoSubBlocks = (sub: string): string => `
    ${accumulators(['a', 'b', 'c', 'd'], 'i32x4.splat(0)')}
    ${hasFifths ? ofFiveBits(sub) : vectors(8, sub)}
    scaled = addSubBlocks(joinChains<T>(a, c, ones), joinChains<T>(b, d, ones), scales, byte, y, scaled);
    ${hasFifths ? '' : 'codes += 128; x += 64;'}
    scales = ${sub} === 2 ? scalesK(at + SCALES_AT_K, true, low) : i32x4.shr_u(scales, 16);
    y += 2 * META_BYTES;`;
  return `
    /** Four rows of a super-block, with two chains of products per sub-block. */
    export function ${name}<T>(at: usize, x: usize, meta: usize, sums: v128): v128 {
      const low = nibbleMask();
      const byte = byteMask();
      ${hasFifths ? 'const sixteen = v128.and(pairMask(), i32x4.splat(0x10101010));' : ''}
      ${ones}
      let scales = scalesK(at + SCALES_AT_K, false, low);
      let scaled = f32x4.splat(0);
      let codes = at + ${hasFifths ? 'NIBBLES_AT_Q5_K' : 'NIBBLES_AT_Q4_K'};
      let y = meta;
      ${
        hasFifths
          ? times(4, (pair) => `{ ${twoSubBlocks(String(2 * pair))} }`)
          : `for (let sub = 0; sub < 8; sub += 2) { ${twoSubBlocks('sub')} }`
      }
      return addSuperBlock(at, scaled, meta, low, byte, sums);
    }`;
}

/** Codes of a quarter of q6_K: nibbles of the vector `four` and two high bits of the vector `two`. */
function codesQ6K(quarter: number, four: string, two: string): string {
  const nibble = quarter < 2 ? `v128.and(${four}, low)` : `highNibbles(${four}, low)`;
  const moved = [`i16x8.shl(${two}, 4)`, `i16x8.shl(${two}, 2)`, two, `i16x8.shr_u(${two}, 2)`][quarter];
  return `v128.or(${nibble}, v128.and(${moved}, pair))`;
}

/** Products of vectors `2 j` and `2 j + 1` of a part: quarters 0 and 2 share nibbles, as do 1 and 3; all share bits. */
function productsQ6K(j: number): string {
  const declare = j === 0 ? 'let ' : '';
  return `
    ${declare}u = ${load('codes', 32 * j)};
    ${declare}v = ${load('codes', 128 + 32 * j)};
    ${declare}bits = ${load('twos', 32 * j)};
    ${declare}w = ${load('codes', 16 + 32 * j)};
    ${declare}z = ${load('codes', 144 + 32 * j)};
    ${declare}others = ${load('twos', 16 + 32 * j)};
    ${times(4, (q) => {
      const [first, second] = q % 2 === 0 ? (['u', 'w'] as const) : (['v', 'z'] as const);
      const one = `${splat32('y', 32 * q + 8 * j)}, ${codesQ6K(q, first, 'bits')}`;
      const other = `${splat32('y', 32 * q + 8 * j + 4)}, ${codesQ6K(q, second, 'others')}`;
      return `s${q} = dotTwo<T>(${one}, ${other}, s${q}, ones);`;
    })}`;
}

const superBlockQ6K = `
  /** Four rows of a super-block of q6_K. */
  export function superBlockQ6K<T>(at: usize, x: usize, meta: usize, sums: v128): v128 {
    const low = nibbleMask();
    const pair = pairMask();
    ${ones}
    let scaled = f32x4.splat(0);
    for (let half: usize = 0; half < 2; half++) {
      for (let part: usize = 0; part < 2; part++) {
        const at4 = meta + (part << 2);
        ${times(4, (q) => `let s${q} = ${splat32('at4', `${q} * META_BYTES + META_MINUS_32`)};`)}
        const codes = at + NIBBLES_AT_Q6_K + (half << 8) + (part << 6);
        const twos = at + PAIRS_AT_Q6_K + (half << 7) + (part << 6);
        const y = x + (part << 4);
        ${times(2, productsQ6K)}
        // sub-block of quarter q, part p of this half: half * 8 + q * 2 + p, a byte of the word of its row
        const shift = 24 - (<i32>part << 3);
        const first = v128.load(at + (half << 5), SCALES_AT_Q6_K);
        const second = v128.load(at + (half << 5), SCALES_AT_Q6_K + 16);
        ${times(4, (q) => {
          const scales = `i32x4.shl(${q < 2 ? 'first' : 'second'}, shift${q % 2 === 0 ? '' : ' - 16'})`;
          return `scaled = addScaled(s${q}, ${scales}, meta + ${q} * META_BYTES, scaled);`;
        })}
      }
      x += 128;
      meta += 4 * META_BYTES;
    }
    return fma(scales4(at, halfMask(), halfFactor()), scaled, sums);
  }`;

const imports = `
  import { Q4_0_BLOCK_BYTES, Q4_K, Q5_K, Q6_K, Q8_0_BLOCK_BYTES, bytesOf } from '../quant/dequantize';
  import { GROUP_SIZE, META_BYTES, META_MINUS_32, META_MINUS_8, META_START_Q8 } from '../runtime/layout.generated';
  import { FIFTHS_AT_Q5_K, NIBBLES_AT_Q4_K, NIBBLES_AT_Q5_K, NIBBLES_AT_Q6_K } from '../runtime/layout.generated';
  import { PAIRS_AT_Q6_K, SCALES_AT_K, SCALES_AT_Q6_K } from '../runtime/layout.generated';
  import { byteMask, halfFactor, halfMask, nibbleMask, onePairs, pairMask } from '../simd/constants.generated';
  import { fma, highNibbles, lowNibbles } from '../simd/vector';
  import { dot, dotNibbles, dotSignMagnitude, dotTwo } from '../quant/int8-dot';
  import { addProducts, addScaled, addSubBlocks, addSuperBlock, fifthBit, joinChains } from './k-quants';
  import { scales4, scalesK } from './k-quants';`;

export const qgemvFiles: ReadonlyMap<string, string> = new Map([
  [
    'gemm/qgemv.generated.ts',
    file('qgemv microkernels: one token times groups of four interleaved rows.', imports, [
      ...[superBlockK('superBlockQ4K', false), superBlockK('superBlockQ5K', true), superBlockQ6K],
      ...[q8, q8SignMagnitude, q4].flatMap((format) => [qgemv(format, 1), qgemv(format, streams.blocks)]),
      ...superBlocks.flatMap((format) => [qgemv(format, 1), qgemv(format, streams.superBlocks)]),
    ]),
  ],
]);
