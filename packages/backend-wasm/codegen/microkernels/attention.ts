/**
 * Templates of the microkernels of attention and recurrent states: dot products of four rows, weighted sums and means
 * of rows, softmax weights, the gated delta rule. Accumulators stay in registers for a whole loop.
 */
import { accumulators, advance, file, load, names, splat32, store, times } from './emit.ts';

/** A loop over columns, `width` vectors per pass; every pass goes over all rows. */
const axpyPass = (width: number): string => `
    for (; column + ${16 * width} <= vectorBytes; column += ${16 * width}) {
      ${times(width, (i) => `let a${i} = f32x4.mul(${load('x + column', 16 * i)}, f);`)}
      for (let at = rows, w = weights; at < end; at += stride, w += stride) {
        const weight = v128.load32_splat(w);
        const row = <usize>load<u32>(at) + column;
        ${times(width, (i) => `a${i} = fma(${load('row', 16 * i)}, weight, a${i});`)}
      }
      ${times(width, (i) => store('y + column', `a${i}`, 16 * i))}
    }`;
const axpyIndirect = `
  /**
   * \`y = x * factor + sum of weight * row\`; addresses of rows, and weights, are \`stride\` bytes apart. Columns
   * beyond \`vectorBytes\` are computed one by one.
   */
  export function axpyIndirect(
    y: usize, x: usize, factor: f32, rows: usize, weights: usize, stride: usize, count: i32,
    vectorBytes: usize, sizeBytes: usize): void {
    const end = rows + <usize>count * stride;
    const f = f32x4.splat(factor);
    let column: usize = 0;
    ${axpyPass(8)}
    ${axpyPass(1)}
    for (; column < sizeBytes; column += 4) {
      let a: f32 = load<f32>(x + column) * factor;
      for (let at = rows, w = weights; at < end; at += stride, w += stride) {
        a += load<f32>(<usize>load<u32>(at) + column) * load<f32>(w);
      }
      store<f32>(y + column, a);
    }
  }`;

const meanPass = (width: number): string => `
    for (; column + ${16 * width} <= bytes; column += ${16 * width}) {
      ${times(width, (i) => `let a${i} = ${load('mean + column', 16 * i)};`)}
      for (let n = before + 1, row = x + column; n <= after; n++, row += bytes) {
        const share = f32x4.splat(<f32>1 / <f32>n);
        ${times(width, (i) => `a${i} = fma(f32x4.sub(${load('row', 16 * i)}, a${i}), share, a${i});`)}
      }
      ${times(width, (i) => store('mean + column', `a${i}`, 16 * i))}
    }`;
const updateMean = `
  /** \`mean += (x - mean) * (1 / count)\` for contiguous rows, with counts from \`before + 1\` to \`after\`. */
  export function updateMean(mean: usize, x: usize, bytes: usize, before: i32, after: i32): void {
    if (before === 0) memory.fill(mean, 0, bytes);
    let column: usize = 0;
    ${meanPass(8)}
    ${meanPass(1)}
    for (; column < bytes; column += 4) {
      let a = load<f32>(mean + column);
      for (let n = before + 1, row = x + column; n <= after; n++, row += bytes) {
        a += (load<f32>(row) - a) * (<f32>1 / <f32>n);
      }
      store<f32>(mean + column, a);
    }
  }`;

/** Sums over four rows with shared operands: `add` updates the sum of a row, `addColumn` adds a column of all four. */
function fourSums(header: string, shared: readonly string[], add: (i: number) => string, addColumn: string): string {
  const each = (make: (i: number) => string): string => Array.from({ length: 4 }, (_, i) => make(i)).join();
  return `
    ${header} {
      ${accumulators(names('s', 4), 'f32x4.splat(0)')}
      let i: usize = 0;
      for (; i + 16 <= bytes; i += 16) {
        ${shared.map((row) => `const ${row}4 = ${load(`${row} + i`)};`).join('\n')}
        ${times(4, (k) => `s${k} = ${add(k)};`)}
      }
      let result = f32x4(${each((k) => `sum4(s${k})`)});
      for (; i < bytes; i += 4) {
        const column = f32x4(${each((k) => `load<f32>(w${k} + i)`)});
        ${shared.map((row) => `const ${row}4 = ${splat32(`${row} + i`)};`).join('\n')}
        result = f32x4.add(result, ${addColumn});
      }
      return result;
    }`;
}

const dot4 = fourSums(
  `/** Dot products of one row with four others. */
  export function dot4(x: usize, w0: usize, w1: usize, w2: usize, w3: usize, bytes: usize): v128`,
  ['x'],
  (i) => `fma(x4, ${load(`w${i} + i`)}, s${i})`,
  'f32x4.mul(x4, column)',
);
const boxBound4 = fourSums(
  `/** Upper bounds of the dot products of four queries with any key in a box. */
  export function boxBound4(low: usize, high: usize, w0: usize, w1: usize, w2: usize, w3: usize, bytes: usize): v128`,
  ['low', 'high'],
  (i) => `boundAdded(s${i}, ${load(`w${i} + i`)}, low4, high4)`,
  'f32x4.max(f32x4.mul(column, low4), f32x4.mul(column, high4))',
);

const imports = `
  import { fma, sum4 } from '../simd/vector';

/**
 * 1 / ln 2, the smallest exponent, 1.5 * 2^23, the coefficients of 2^r from degree 6 down to 1 (least squares of the
 * relative error over [-1/2, 1/2]: 2.2e-9, in f32 below 1e-7), 1.
 */
const table = memory.data<f32>([
  1.4426950408889634, -127, 12582912, 1.5370705380938858e-4, 1.3399848281486022e-3, 9.618373249344893e-3,
  5.5503290351823074e-2, 2.402264846229741e-1, 6.931472055770829e-1, 1,
]);

/** Adds the larger product of a query with the two ends of a box to a sum of bounds. */
/* @inline */ function boundAdded(sum: v128, q: v128, low: v128, high: v128): v128 {
  return f32x4.add(sum, f32x4.pmax(f32x4.mul(q, low), f32x4.mul(q, high)));
}`;

/** Several vectors of lanes, which share the loads of constants. */
function softmaxWeights(numVectors: number): string {
  const each = (make: (i: number) => string): string => times(numVectors, make);
  const lanes = 4 * numVectors;
  const vectors = [...names('shift', numVectors), ...names('factor', numVectors)].join(': v128, ');
  return `
    /**
     * Turns the logits of ${lanes} lanes, \`stride\` bytes apart, into weights \`exp(logit - shift)\` and adds them to
     * \`factor\` times the sums. exp is 2^(x / ln 2), 0 below 2^-126, NaN for NaN; rounding x / ln 2 adds |x| 2^-24 to
     * the relative error. Bit-identical for any number of lanes.
     */
    export function softmaxWeights${lanes}(at: usize, end: usize, stride: usize, sums: usize, ${vectors}: v128): void {
      ${each((i) => `let sum${i} = f32x4.mul(${load('sums', 16 * i)}, factor${i});`)}
      for (; at < end; at += stride) {
        let c = v128.load32_splat(table);
        ${each((i) => `let t${i} = f32x4.mul(f32x4.sub(${load('at', 16 * i)}, shift${i}), c);`)}
        c = v128.load32_splat(table, 4);
        ${each((i) => `t${i} = f32x4.pmax(t${i}, c);`)}
        // adding 1.5 * 2^23 leaves the integer part in the low bits
        c = v128.load32_splat(table, 8);
        ${each((i) => `const n${i} = f32x4.add(t${i}, c);`)}
        ${each((i) => `const r${i} = f32x4.sub(t${i}, f32x4.sub(n${i}, c));`)}
        c = v128.load32_splat(table, 12);
        let d = v128.load32_splat(table, 16);
        ${each((i) => `let p${i} = fma(c, r${i}, d);`)}
        ${times(
          5,
          (k) => `
          d = v128.load32_splat(table, ${20 + 4 * k});
          ${each((i) => `p${i} = fma(p${i}, r${i}, d);`)}`,
        )}
        // adding the integer to the exponent of 1 gives 2^n, and 0 for the smallest exponent
        ${each((i) => `p${i} = f32x4.mul(p${i}, i32x4.add(i32x4.shl(n${i}, 23), d));`)}
        ${each((i) => store('at', `p${i}`, 16 * i))}
        ${each((i) => `sum${i} = f32x4.add(sum${i}, p${i});`)}
      }
      ${each((i) => store('sums', `sum${i}`, 16 * i))}
    }`;
}

const scoreColumns = `
  /** Scaled dot products of two rows of length \`depth\` with 16 columns, whose elements are \`stride\` bytes apart. */
  export function scoreColumns2x16(
    y: usize, other: usize, q: usize, p: usize, columns: usize, stride: usize, depth: i32, scale: f32): void {
    ${accumulators([...names('s', 4), ...names('t', 4)], 'f32x4.splat(0)')}
    for (let c = depth; c > 0; c--, q += 4, p += 4, columns += stride) {
      const x = v128.load32_splat(q);
      const z = v128.load32_splat(p);
      ${times(
        4,
        (i) => `
          ${i === 0 ? 'let ' : ''}k = ${load('columns', 16 * i)};
          s${i} = fma(x, k, s${i});
          t${i} = fma(z, k, t${i});`,
      )}
    }
    const factor = f32x4.splat(scale);
    ${times(4, (i) => store('y', `f32x4.mul(s${i}, factor)`, 16 * i))}
    ${times(4, (i) => store('other', `f32x4.mul(t${i}, factor)`, 16 * i))}
  }`;

const sumsOf = (prefix: string): string => `f32x4(${names(`sum4(${prefix}`, 4).join('), ')}))`;
const gatedDelta = `
  /**
   * Updates four rows of the state with a token: \`m = m * decay + delta * key\`. \`y\` gets their dot products with the
   * query, \`recalled\` those with the next key; \`gate\` holds the decay and the learning rate.
   */
  export function gatedDelta4(
    m0: usize, q: usize, k: usize, next: usize, gate: usize, v: usize, recalled: usize, y: usize, keyDim: i32): void {
    const decay = v128.load32_splat(gate);
    const residual = f32x4.sub(v128.load(v), f32x4.mul(decay, v128.load(recalled)));
    const delta = f32x4.mul(v128.load32_splat(gate, 4), residual);
    ${times(4, (i) => `const d${i} = f32x4.splat(f32x4.extract_lane(delta, ${i}));`)}
    const rowBytes = (<usize>keyDim) << 2;
    ${times(3, (i) => `let m${i + 1} = m${i} + rowBytes;`)}
    ${accumulators([...names('r', 4), ...names('c', 4)], 'f32x4.splat(0)')}
    for (let i = keyDim; i > 0; i -= 4) {
      const key = v128.load(k);
      const query = v128.load(q);
      const nextKey = v128.load(next);
      ${times(
        4,
        (i) => `
          ${i === 0 ? 'let ' : ''}value = fma(d${i}, key, f32x4.mul(${load(`m${i}`)}, decay));
          ${store(`m${i}`, 'value')}
          r${i} = fma(value, query, r${i});
          c${i} = fma(value, nextKey, c${i});`,
      )}
      ${advance([...names('m', 4), 'q', 'k', 'next'], 16)}
    }
    ${store('y', sumsOf('r'))}
    ${store('recalled', sumsOf('c'))}
  }`;

export const attentionFiles: ReadonlyMap<string, string> = new Map([
  [
    'attention/microkernels.generated.ts',
    file('Microkernels of attention and recurrent states; see the templates for how they work.', imports, [
      ...[axpyIndirect, updateMean, dot4, boxBound4, softmaxWeights(1), softmaxWeights(2), scoreColumns, gatedDelta],
    ]),
  ],
]);
