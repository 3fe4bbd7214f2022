/**
 * Templates of qgemv microkernels: one token of 8-bit activations times groups of four interleaved rows. Several groups are
 * streamed side by side, because one stream of weights leaves much of the memory bandwidth unused, and activations are read once
 * for all of them. A single group has two chains of dot products instead, which hide their latency.
 */
import { accumulators, advance, block, fma, kernel, load, splat32, store, names, times, type Lines } from './emit.ts';

/** A weight format, with a block of a group at `q`. */
export interface GroupFormat {
  readonly name: string;
  readonly doc: string;
  readonly parameters?: Lines;
  /** Vectors that stay in registers. */
  readonly constants: Lines;
  readonly blockBytes: number | string;
  readonly columns: number;
  readonly codeBytes: number;
  readonly metaBytes: string;
  /** What all groups take from the activations. */
  readonly activations: Lines;
  /** Chains of dot products of each group where several go side by side: usdot takes one instruction of a chain, other kinds more. */
  readonly chains: Lines;
  /** Adds a block to an accumulator, with a chain for each name. */
  add(accumulator: string, chains: Lines): Lines;
}

/** Dot products in turns by the chains, whose sums times the scales of the four rows are added to the accumulator. */
function scaledProducts(
  accumulator: string,
  chains: Lines,
  count: number,
  product: (j: number, chain: string) => string,
): Lines {
  const chainOf = (j: number): string => chains[j % chains.length] as string;
  return [
    'scale = f32x4.mul(scales4(q, mask, factor), d);',
    ...chains.map((chain, index) => `${chain} = ${index === 0 ? 'initial' : 'i32x4.splat(0)'};`),
    ...times(count, (j) => `${chainOf(j)} = ${product(j, chainOf(j))};`),
    `${accumulator} = fma(f32x4.convert_i32x4_s(${chains.length === 2 ? 'i32x4.add(a, b)' : 'a'}), scale, ${accumulator});`,
  ];
}

const blockConstants = ['const mask = halfMask();', 'const factor = halfFactor();'];
const ones = 'const ones = onePairs();';
const blockMeta = (start: string): Lines => [
  `const initial = ${splat32('meta', start)};`,
  `const d = ${splat32('meta')};`,
];

/** q8_0 where codes above 127 are exact. */
export const q8: GroupFormat = {
  ...{ name: 'Q8', doc: 'q8_0 by usdot', blockBytes: 136, columns: 32, codeBytes: 32, metaBytes: 'META_BYTES' },
  constants: blockConstants,
  chains: ['a'],
  activations: [...times(8, (j) => `const u${j} = ${splat32('x', 4 * j)};`), ...blockMeta('META_START_Q8')],
  add: (accumulator, chains) =>
    scaledProducts(accumulator, chains, 8, (j, chain) => `dot(u${j}, ${load('q', 8 + 16 * j)}, ${chain})`),
};

/** q8_0 otherwise: activations are magnitudes [32] and signs [32]. */
export const q8SignMagnitude: GroupFormat = {
  ...{ name: 'Q8SignMagnitude<T>', doc: 'q8_0 by maddubs or generic dot products' },
  ...{ blockBytes: 136, columns: 32, codeBytes: 64, metaBytes: 'META_BYTES' },
  constants: [...blockConstants, ones],
  chains: ['a', 'b'],
  activations: blockMeta('META_START_Q8'),
  add: (accumulator, chains) =>
    scaledProducts(accumulator, chains, 8, (j, chain) => {
      const [magnitudes, signs] = [splat32('x', 4 * j), splat32('x', 32 + 4 * j)];
      return `dotSignMagnitude<T>(${magnitudes}, ${signs}, ${load('q', 8 + 16 * j)}, ${chain}, ones)`;
    }),
};

/** q4_0: columns 4 j in the low nibbles of a vector, 16 + 4 j in the high ones. */
export const q4: GroupFormat = {
  ...{ name: 'Q4<T>', doc: 'q4_0', blockBytes: 72, columns: 32, codeBytes: 32, metaBytes: 'META_BYTES' },
  constants: [...blockConstants, 'const low = nibbleMask();', ones],
  chains: ['a'],
  activations: [
    ...times(4, (j) => `const u${j} = ${splat32('x', 4 * j)};`),
    ...times(4, (j) => `const v${j} = ${splat32('x', 16 + 4 * j)};`),
    ...blockMeta('META_MINUS_8'),
  ],
  add: (accumulator, chains) =>
    scaledProducts(accumulator, chains, 2, (j, chain) => {
      const [i, k] = [2 * j, 2 * j + 1];
      const codes = `${load('q', 8 + 16 * i)}, ${load('q', 8 + 16 * k)}`;
      return `dotNibbles<T>(${codes}, u${i}, u${k}, v${i}, v${k}, low, ${chain}, ones)`;
    }),
};

/** k-quants, super-blocks of 256 columns. */
export const superBlocks: GroupFormat = {
  ...{ name: 'K<T>', doc: 'k-quants', parameters: ['dtype: i32'] },
  ...{ blockBytes: 'blockBytes', columns: 256, codeBytes: 256, metaBytes: '8 * META_BYTES' },
  constants: ['const blockBytes = superBlockBytes(dtype);'],
  chains: [],
  activations: [],
  add: (accumulator) => [`${accumulator} = superBlock<T>(dtype, q, x, meta, ${accumulator});`],
};

function nameOf({ name }: GroupFormat, groups: number): string {
  return groups === 1 ? `qgemv${name}` : `qgemv${name.replace(/(<T>)?$/, `x${groups}$1`)}`;
}

/** One token times `groups` groups, `stride` bytes apart; sums go to `to[groups][4]`, those of a single group are returned. */
export function qgemv(format: GroupFormat, groups: number): Lines {
  const isSingle = groups === 1;
  const sums = isSingle ? ['s0'] : names('s', groups);
  const chains = isSingle && format.chains.length > 0 ? ['a', 'b'] : format.chains;
  return kernel({
    name: nameOf(format, groups),
    doc: `${format.doc}: ${isSingle ? 'one group' : `${groups} groups side by side`}.`,
    parameters: [
      ...(format.parameters ?? []),
      'p: usize',
      ...(isSingle ? [] : ['stride: usize']),
      ...['numInputs: i32', 'x: usize', 'meta: usize'],
      ...(isSingle ? [] : ['to: usize']),
    ],
    returns: isSingle ? 'v128' : 'void',
    body: [
      ...format.constants,
      ...accumulators(sums, 'f32x4.splat(0)'),
      ...block(`for (let left = numInputs >> ${Math.log2(format.columns)}; left > 0; left--)`, [
        ...format.activations,
        'let q = p;',
        ...(chains.length > 0 ? ['let scale: v128;', ...chains.map((chain) => `let ${chain}: v128;`)] : []),
        ...times(groups, (i) => [...(i === 0 ? [] : ['q += stride;']), ...format.add(`s${i}`, chains)]),
        ...advance(['p'], format.blockBytes),
        ...advance(['x'], format.codeBytes),
        ...advance(['meta'], format.metaBytes),
      ]),
      ...(isSingle ? ['return s0;'] : sums.map((name, i) => store('to', name, 16 * i))),
    ],
  });
}

/** Four rows of a super-block of q4_K: what is multiplied by d and by dmin is summed over the sub-blocks first. */
export function superBlockQ4K(): Lines {
  const pair = times(8, (j) => {
    const [first, second] = j % 2 === 0 ? ['a', 'b'] : ['c', 'd'];
    return [
      `${j === 0 ? 'let ' : ''}v = ${load('codes', 16 * j)};`,
      `${first} = addProducts<T>(${splat32('x', 4 * j)}, lowNibbles(v, low), ${first});`,
      `${second} = addProducts<T>(${splat32('x', 32 + 4 * j)}, highNibbles(v, low), ${second});`,
    ];
  });
  return kernel({
    name: 'superBlockQ4K<T>',
    doc: 'Four rows of a super-block of q4_K, with two chains of products per sub-block.',
    parameters: ['at: usize', 'x: usize', 'meta: usize', 'sums: v128'],
    returns: 'v128',
    body: [
      'const low = nibbleMask();',
      'const byte = byteMask();',
      ones,
      'let scaled = f32x4.splat(0);',
      'let codes = at + 64;',
      'let y = meta;',
      ...block('for (let sub = 0; sub < 8; sub += 2)', [
        ...accumulators(['a', 'b', 'c', 'd'], 'i32x4.splat(0)'),
        ...pair,
        'const scales = i32x4.shr_u(scalesK(at + 16, sub >= 4, low), (sub & 2) << 3);',
        'scaled = addSubBlocks(joinChains<T>(a, c, ones), joinChains<T>(b, d, ones), scales, byte, y, scaled);',
        'codes += 128;',
        'x += 64;',
        'y += 2 * META_BYTES;',
      ]),
      'return addSuperBlock(at, scaled, meta, low, byte, sums);',
    ],
  });
}

/** Codes of quarter `q` of q6_K: a nibble of the vector `four`, two more bits of the vector `two`. */
function codesQ6K(quarter: number, four: string, two: string): string {
  const nibble = quarter < 2 ? `v128.and(${four}, low)` : `highNibbles(${four}, low)`;
  const moved = [`i16x8.shl(${two}, 4)`, `i16x8.shl(${two}, 2)`, two, `i16x8.shr_u(${two}, 2)`][quarter];
  return `v128.or(${nibble}, v128.and(${moved}, pair))`;
}

/** Four rows of a super-block of q6_K. Of each half, quarters 0 and 2 share a run of nibbles, 1 and 3 the other; all share the bit pairs. */
export function superBlockQ6K(): Lines {
  const chains = ['a', 'b', 'c', 'd'];
  const products = times(2, (j) => {
    const declare = j === 0 ? 'let ' : '';
    return [
      `${declare}u = ${load('codes', 32 * j)};`,
      `${declare}v = ${load('codes', 128 + 32 * j)};`,
      `${declare}bits = ${load('twos', 32 * j)};`,
      `${declare}w = ${load('codes', 16 + 32 * j)};`,
      `${declare}z = ${load('codes', 144 + 32 * j)};`,
      `${declare}others = ${load('twos', 16 + 32 * j)};`,
      ...times(4, (q) => {
        const [first, second] = q % 2 === 0 ? ['u', 'w'] : ['v', 'z'];
        const operands = [
          `${splat32('y', 32 * q + 8 * j)}, ${codesQ6K(q, first as string, 'bits')}`,
          `${splat32('y', 32 * q + 8 * j + 4)}, ${codesQ6K(q, second as string, 'others')}`,
        ];
        return `${chains[q]} = dotTwo<T>(${operands.join(', ')}, ${chains[q]}, ones);`;
      }),
    ];
  });
  const metaOf = (q: number): string => (q === 0 ? '' : q === 1 ? 'META_BYTES + ' : `${q} * META_BYTES + `);
  const part = [
    'const at4 = meta + (part << 2);',
    ...chains.map((chain, q) => `let ${chain} = ${splat32('at4', `${metaOf(q)}META_MINUS_32`)};`),
    'const codes = at + 72 + (half << 8) + (part << 6);',
    'const twos = at + 584 + (half << 7) + (part << 6);',
    'const y = x + (part << 4);',
    ...products,
    '// sub-block of quarter q, part p of this half: half * 8 + q * 2 + p, a byte of the word of its row',
    'const shift = 24 - (<i32>part << 3);',
    `const first = ${load('at + (half << 5)', 8)};`,
    `const second = ${load('at + (half << 5)', 24)};`,
    ...chains.map((chain, q) => {
      const scales = `i32x4.shl(${q < 2 ? 'first' : 'second'}, shift${q % 2 === 0 ? '' : ' - 16'})`;
      const address = ['meta', 'meta + META_BYTES'][q] ?? `meta + ${q} * META_BYTES`;
      return `scaled = addScaled(${chain}, ${scales}, ${address}, scaled);`;
    }),
  ];
  return kernel({
    name: 'superBlockQ6K<T>',
    doc: 'Four rows of a super-block of q6_K.',
    parameters: ['at: usize', 'x: usize', 'meta: usize', 'sums: v128'],
    returns: 'v128',
    body: [
      'const low = nibbleMask();',
      'const pair = pairMask();',
      ones,
      'let scaled = f32x4.splat(0);',
      ...block('for (let half: usize = 0; half < 2; half++)', [
        ...block('for (let part: usize = 0; part < 2; part++)', part),
        'x += 128;',
        'meta += 4 * META_BYTES;',
      ]),
      `return ${fma('scales4(at, halfMask(), halfFactor())', 'scaled', 'sums')};`,
    ],
  });
}
