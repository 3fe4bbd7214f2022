/**
 * Templates of microkernels with weights of four rows interleaved and 8-bit activations. qgemm: one block of 32 columns, its codes
 * dequantized to bytes, times many tokens. qgemv: one token times several groups of rows, which are streams of memory side by side.
 * How 8-bit products are summed is `usdot`, `maddubs` or `generic`; see int8-dot.ts.
 */
import { advance, block, fma, kernel, load, splat32, store, times, type Lines } from './emit.ts';

const int32 = (value: string): string => `f32x4.convert_i32x4_s(${value})`;
const scaled = (sums: string, scale: string, old: string): string => fma(int32(sums), scale, old);

/** How products of a block become part of the sums of a token. */
type Scales = 'one' | 'offset' | 'halves';

export interface BlockTimesTokens {
  readonly name: string;
  readonly doc: string;
  /** A scale per row; a scale and an offset; a scale for each half of the columns. */
  readonly scales: Scales;
  /**
   * Two chains of dot products; products by pairs of 16 bits, of which several vectors fit; two chains where activations are
   * magnitudes [32] and signs [32].
   */
  readonly dot: 'direct' | 'pairs' | 'signMagnitude';
}

/** Bytes of the meta of a block: as META_BYTES. */
const metaBytes = 32;

function offsetOf(base: number, name: string): string | number {
  return base === 0 ? name : `${base} + ${name}`;
}

/** What the chains a and b begin with. */
function starts({ scales, dot }: BlockTimesTokens, base: number): readonly [string, string] {
  const [address, first] = dot === 'direct' ? (['start', undefined] as const) : (['meta', 'META'] as const);
  if (scales === 'halves') {
    if (first === undefined) return [splat32(address, base), splat32(address, base + 4)];
    return [splat32('meta', 'META_MINUS_32'), splat32('meta', 'META_MINUS_32 + 4')];
  }
  return [first === undefined ? splat32(address, base) : splat32('meta', 'META_START_Q8'), 'i32x4.splat(0)'];
}

/** The eight products of a token, in the chains a and b. */
function chains(kind: BlockTimesTokens, token: number): Lines {
  const base = metaBytes * token;
  const declare = token === 0 ? 'let ' : '';
  const [a, b] = starts(kind, base);
  return [
    `${declare}a = ${a};`,
    `${declare}b = ${b};`,
    ...times(8, (j) => {
      const chain = (kind.scales === 'halves' ? j < 4 : j % 2 === 0) ? 'a' : 'b';
      const x = splat32('x', base + 4 * j);
      if (kind.dot === 'direct') return `${chain} = dot(${x}, u${j}, ${chain});`;
      return `${chain} = dotSignMagnitude<T>(${x}, ${splat32('x', 32 + 4 * j)}, u${j}, ${chain}, ones);`;
    }),
  ];
}

/** The same by pairs of products: sums of 16 bits as long as they fit, then of 32 bits. */
function pairChains({ scales }: BlockTimesTokens): Lines {
  const product = (j: number): string => `pairs(${splat32('x', 4 * j)}, u${j})`;
  if (scales === 'halves') {
    return [
      ...['a', 'b'].map(
        (chain, half) => `let ${chain} = ${splat32('meta', half === 0 ? 'META_MINUS_32' : 'META_MINUS_32 + 4')};`,
      ),
      ...times(4, (j) => {
        const chain = j < 2 ? 'a' : 'b';
        return `${chain} = addPairs(${chain}, i16x8.add(${product(2 * j)}, ${product(2 * j + 1)}), ones);`;
      }),
    ];
  }
  const total =
    scales === 'one'
      ? `addPairs(${splat32('meta', 'META_MINUS_8')}, i16x8.add(a, b), ones)`
      : 'addPairs(addPairs(i32x4.splat(0), a, ones), b, ones)';
  return [
    `let a = ${product(0)};`,
    `let b = ${product(1)};`,
    ...times(6, (j) => {
      const chain = j % 2 === 0 ? 'a' : 'b';
      return `${chain} = i16x8.add(${chain}, ${product(j + 2)});`;
    }),
    `const blocks = ${total};`,
  ];
}

/** Adds the chains, times scales, to the sums of a token. */
function addToSums({ scales, dot }: BlockTimesTokens, token: number): Lines {
  const base = metaBytes * token;
  const declare = token === 0 ? 'let ' : '';
  const old = load('sums', 16 * token);
  const d = splat32('meta', base);
  if (scales === 'halves') {
    return [
      `${declare}d = ${d};`,
      `${declare}s = ${scaled('a', 'f32x4.mul(scale, d)', old)};`,
      store('sums', scaled('b', 'f32x4.mul(other, d)', 's'), 16 * token),
    ];
  }
  const blocks = dot === 'pairs' ? 'blocks' : 'i32x4.add(a, b)';
  if (scales === 'one') return [store('sums', scaled(blocks, `f32x4.mul(scale, ${d})`, old), 16 * token)];
  return [
    `${declare}s = ${fma('offset', splat32('meta', offsetOf(base, 'META_SUM')), old)};`,
    store('sums', scaled(blocks, `f32x4.mul(scale, ${d})`, 's'), 16 * token),
  ];
}

/** One block of a group times tokens, whose codes and metas lie side by side; adds to `sums[token][4]`. */
export function blockTimesTokens(kind: BlockTimesTokens): Lines {
  const isDirect = kind.dot === 'direct';
  const unrolled = isDirect ? 4 : 1;
  const codeBytes = kind.dot === 'signMagnitude' ? 64 : 32;
  const extra = {
    one: [],
    offset: [`const offset = ${load('p', 144)};`],
    halves: [`const other = ${load('p', 144)};`],
  };
  return kernel({
    ...kind,
    name: kind.dot === 'signMagnitude' ? `${kind.name}<T>` : kind.name,
    parameters: [
      ...['p: usize', 'scale: v128', 'x: usize', 'meta: usize'],
      ...(isDirect ? ['start: usize'] : []),
      ...['sums: usize', 'numTokens: i32'],
    ],
    body: [
      ...(isDirect ? [] : ['const ones = onePairs();']),
      ...times(8, (j) => `const u${j} = ${load('p', 16 * j)};`),
      ...extra[kind.scales],
      ...block(`for (let t = 0; t < numTokens; t += ${unrolled})`, [
        ...times(unrolled, (token) => [
          ...(kind.dot === 'pairs' ? pairChains(kind) : chains(kind, token)),
          ...addToSums(kind, token),
        ]),
        `x += ${codeBytes * unrolled};`,
        ...advance(isDirect ? ['meta', 'start'] : ['meta'], metaBytes * unrolled),
        `sums += ${16 * unrolled};`,
      ]),
    ],
  });
}
