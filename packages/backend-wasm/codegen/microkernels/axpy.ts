/**
 * Templates of axpy over rows of q8_0 or q4_0 at arbitrary addresses: adds the rows, each times a coefficient, to 32
 * columns at a time. The loop has a single load instruction for each of eight rows, because hardware prefetchers track
 * load instructions, and only a few of them.
 */
import { axpyRows, pointers, rowPointers, rowSums } from './eight-rows.ts';
import { accumulators, advance, file, load, names, splat32, store, times } from './emit.ts';

/** Layout of rows in memory: that of files, or repacked, with the scales of four blocks before their codes. */
interface RowLayout {
  readonly suffix: string;
  readonly doc: string;
  /** Offset of the codes of a block from the pointer. */
  readonly codesAt: number;
  /** Bytes between the codes of one block and the next. */
  readonly gap: number;
  /** Whether codes of q8_0 are signed, so that their sign bits are flipped. */
  readonly isSigned: boolean;
}

const plain: RowLayout = { suffix: '', doc: 'in the layout of files', codesAt: 2, gap: 2, isSigned: true };
const repacked: RowLayout = { suffix: 'Repacked', doc: 'repacked', codesAt: 8, gap: 0, isSigned: false };

const parameters = 'rows: usize, offset: usize, count: i32, known: usize, from: usize, step: usize, to: usize';

/** Adds integer sums times their step to the old values and stores the result. */
function addSums(sums: string, offset: number): string {
  return store('to', `scaled(${sums}, unit, ${load('from', offset)})`, offset);
}

/** q8_0, 16 columns at a time. T as for `dotCodes`. */
function axpyQ8({ suffix, doc, codesAt, gap, isSigned }: RowLayout): string {
  const codes = (row: number): string => {
    const vector = load(`p${row}`, codesAt);
    return isSigned ? `v128.xor(${vector}, flip)` : vector;
  };
  const quad = (index: number): string => {
    const operands = index === 0 ? 'h, m' : 'i, n';
    const declare = index === 0 ? 'let ' : '';
    const add = (s: number, columns: string): string =>
      `${declare}s${s} = dotCodes<T>(${operands}, ${columns}(ab, cd), ${index === 0 ? 'start' : `s${s}`}, ones);`;
    return `
      ${['a', 'b', 'c', 'd'].map((name, row) => `${declare}${name} = ${codes(4 * index + row)};`).join('\n')}
      ${declare}ab = lowBytes(a, b);
      ${declare}cd = lowBytes(c, d);
      ${add(0, 'lowPairs')}
      ${add(1, 'highPairs')}
      ab = highBytes(a, b);
      cd = highBytes(c, d);
      ${add(2, 'lowPairs')}
      ${add(3, 'highPairs')}`;
  };
  return `
    /** Adds \`count\` blocks of eight rows of q8_0, ${doc}, times their coefficients at \`known\`. */
    export function axpyQ8${suffix}<T>(${parameters}): void {
      const ones = onePairs();
      ${isSigned ? 'const flip = flipSigns();' : ''}
      ${rowPointers}
      for (const end = to + <usize>count * SUMS_BYTES; to < end; known += 4) {
        const h = v128.load32_splat(known);
        const i = v128.load32_splat(known, LAST);
        const m = isSigned<T>() ? v128.load32_splat(known, SIGNS) : h;
        const n = isSigned<T>() ? v128.load32_splat(known, SIGNS + LAST) : i;
        const start = v128.load32_splat(known, START);
        const unit = v128.load32_splat(known, STEPS);
        for (const stop = to + SUMS_BYTES; to < stop; to += 64, from += step >> 1) {
          ${quad(0)}
          ${quad(1)}
          ${times(4, (s) => addSums(`s${s}`, 16 * s))}
          ${advance(pointers, 16)}
        }
        ${gap > 0 ? advance(pointers, gap) : ''}
      }
    }`;
}

/** q4_0, columns 4 i and 16 + 4 i together: the low and high nibbles of the same bytes. */
function axpyQ4({ suffix, doc, codesAt, gap }: RowLayout): string {
  const part = (half: 'low' | 'high', pairs: 'low' | 'high', index: number): string => {
    const declare = index === 0 ? 'let ' : '';
    const bytes = ['ab', 'cd', 'ef', 'gj'].map((name) => `${declare}${name} = ${half}Bytes(${[...name].join()});`);
    return `
      ${pairs === 'high' ? '' : bytes.join('\n')}
      ${declare}first = ${pairs}Pairs(ab, cd);
      ${declare}last = ${pairs}Pairs(ef, gj);
      ${declare}sums = dot(i, lowNibbles(last, low), dot(h, lowNibbles(first, low), start));
      ${addSums('sums', 16 * index)}
      sums = dot(i, highNibbles(last, low), dot(h, highNibbles(first, low), start));
      ${addSums('sums', 64 + 16 * index)}`;
  };
  return `
    /** Adds \`count\` blocks of eight rows of q4_0, ${doc}, times their coefficients at \`known\`. */
    export function axpyQ4${suffix}(${parameters}): void {
      const low = nibbleMask();
      ${rowPointers}
      for (const end = to + <usize>count * SUMS_BYTES; to < end; known += 4, from += step, to += SUMS_BYTES) {
        const h = v128.load32_splat(known);
        const i = v128.load32_splat(known, LAST);
        const start = v128.load32_splat(known, START);
        const unit = v128.load32_splat(known, STEPS);
        ${[...'abcdefgj'].map((name, row) => `const ${name} = ${load(`p${row}`, codesAt)};`).join('\n')}
        ${part('low', 'low', 0)}
        ${part('low', 'high', 1)}
        ${part('high', 'low', 2)}
        ${part('high', 'high', 3)}
        ${advance(pointers, 16 + gap)}
      }
    }`;
}

/** The same by maddubs: the sums of pairs over eight rows, plus the initial sums, stay below `2^15`. */
function axpyQ4Maddubs({ suffix, codesAt, gap, doc }: RowLayout): string {
  const add = (sum: number, nibbles: string): string =>
    `s${sum} = i16x8.add(s${sum}, pairs(h, ${nibbles}Nibbles(ab, low)));`;
  const pairOfRows = (pair: number): string => {
    const declare = pair === 0 ? 'let ' : '';
    return `
      ${declare}a = ${load(`p${2 * pair}`, codesAt)};
      ${declare}b = ${load(`p${2 * pair + 1}`, codesAt)};
      ${declare}h = v128.load16_splat(known, ${16 * (pair >> 1) + 2 * (pair % 2)});
      ${declare}ab = lowBytes(a, b);
      ${add(0, 'low')}
      ${add(2, 'high')}
      ab = highBytes(a, b);
      ${add(1, 'low')}
      ${add(3, 'high')}`;
  };
  return `
    /** Adds \`count\` blocks of eight rows of q4_0, ${doc}, by maddubs: all sums of pairs stay below \`2^15\`. */
    export function axpyQ4Maddubs${suffix}(${parameters}): void {
      const low = nibbleMask();
      ${rowPointers}
      for (const end = to + <usize>count * SUMS_BYTES; to < end; known += 4, from += step, to += SUMS_BYTES) {
        ${accumulators(names('s', 4), 'v128.load16_splat(known, START)')}
        ${times(4, pairOfRows)}
        const unit = v128.load32_splat(known, STEPS);
        ${times(8, (s) => addSums(`i32x4.extend_${s % 2 === 0 ? 'low' : 'high'}_i16x8_s(s${s >> 1})`, 16 * s))}
        ${advance(pointers, 16 + gap)}
      }
    }`;
}

const operands = 'rows, offset, count, known, from, step, to';
const axpyBlocks = `
  /** Adds \`count\` blocks of eight rows, times their coefficients at \`known\`. T as for \`dotCodes\`. */
  export function axpyBlocks<T>(isQ4: bool, isRepacked: bool, ${parameters}): void {
    ${[plain, repacked]
      .map(
        ({ suffix }) => `
          if (isRepacked === ${suffix !== ''}) {
            if (!isQ4) axpyQ8${suffix}<T>(${operands});
            else if (sizeof<T>() === 2) axpyQ4Maddubs${suffix}(${operands});
            else axpyQ4${suffix}(${operands});
          }`,
      )
      .join('')}
  }`;

/** Eight vectors of coefficients, h times scales, to be quantized. */
const values = names('a', axpyRows);
const declarations = times(axpyRows, (i) => `let a${i}: v128;`);
const each = (make: (name: string, index: number) => string): string =>
  values.map((name, index) => `${name} = ${make(name, index)};`).join('\n');
const larger = (first: number): string => `larger(a${first}, a${first + 1})`;
const largest = `
  const low = i32x4.max_u(${larger(0)}, ${larger(2)});
  const high = i32x4.max_u(${larger(4)}, ${larger(6)});`;
const integers = (i: number): string => `rounded(a${i}, inverse, magic)`;

/** Coefficients of four blocks of eight rows, from vectors with the scales of two rows each. */
function coefficients(): string {
  const partOf = (index: number, low: string, high: string): string => (index % 2 === 0 ? low : high);
  const codes = (first: number): string => `narrowed(${[0, 1, 2, 3].map((row) => integers(first + row)).join()})`;
  return `
    /** Stores the coefficients of four blocks, one per lane; \`excess\` is the zero point of the codes of weights. */
    /* @inline */ export function storeCoefficients(
      hasSigns: bool, isNormal: bool, r0: v128, r1: v128, r2: v128, r3: v128, h: usize, excess: v128, to: usize): void {
      ${declarations}
      if (isNormal) {
        const mask = halfMask();
        const bias = halfOffset();
        ${each((_, i) => `${partOf(i, 'low', 'high')}Floats(r${i >> 1}, mask, bias)`)}
      } else {
        ${each((_, i) => `halfToFloat4(i32x4.extend_${partOf(i, 'low', 'high')}_i16x8_u(r${i >> 1}))`)}
      }
      ${each((name, i) => `f32x4.mul(${name}, ${splat32('h', 4 * i)})`)}
      ${largest}
      const inverse = storeSteps(i32x4.shr_u(i32x4.max_u(low, high), 1), to);
      const magic = roundingMagic();
      storeCodes(hasSigns, ${codes(0)}, ${codes(4)}, excess, to);
    }`;
}

/** The step and codes of 32 coefficients of a token: the factors h times the scales of one block of all rows. */
function tokenCoefficients(): string {
  const words = (first: number): string => `i16x8.narrow_i32x4_s(${integers(first)}, ${integers(first + 1)})`;
  return `
    /** Stores the codes of 32 coefficients \`h * scale\` and returns their step. */
    export function tokenCoefficients(scales: usize, h: usize, codes: usize): f32 {
      ${declarations}
      if (areNormal(v128.load(scales), v128.load(scales, 16), v128.load(scales, 32), v128.load(scales, 48))) {
        const mask = halfMask();
        const offset = halfOffset();
        ${each((_, i) => `normalHalves(v128.load16x4_s(scales, ${8 * i}), mask, offset)`)}
      } else {
        ${each((_, i) => `halfToFloat4(v128.load16x4_u(scales, ${8 * i}))`)}
      }
      ${each((name, i) => `f32x4.mul(${name}, ${load('h', 16 * i)})`)}
      ${largest}
      const largest = reinterpret<f32>(maxLane<u32>(i32x4.max_u(low, high)) >> 1);
      // as for activations: values without a finite reciprocal count as zero, and NaN makes the step NaN
      const isFlushed = largest < 1e-36;
      const inverse = f32x4.splat(isFlushed ? 0 : 127 / largest);
      const magic = roundingMagic();
      v128.store(codes, i8x16.narrow_i16x8_s(${words(0)}, ${words(2)}));
      v128.store(codes, i8x16.narrow_i16x8_s(${words(4)}, ${words(6)}), 16);
      return isFlushed ? 0 : largest / 127;
    }`;
}

/** Epilogue of the kernels over interleaved codes: corrects sums for the zero point of the codes and adds them to y. */
const addToColumns = (total: (name: string) => string): string =>
  times(8, (s) => `addColumns(y + ${16 * s}, i32x4.sub(${total(`s${s}`)}, excess), factor);`);
const quads =
  'for (const end = coefficients + (<usize>numQuads << 2); coefficients < end; coefficients += 4, codes += QUAD_BYTES)';

/** Adds 32 interleaved columns of up to 32 rows, with eight accumulators. */
const axpyCodes = `
  /** Adds a block of interleaved codes to y. T as for \`dotCodes\`; \`zero\` is the zero point of the codes. */
  export function axpyCodes<T>(
    zero: v128, codes: usize, numQuads: i32, coefficients: usize, scale: f32, y: usize): void {
    const ones = onePairs();
    ${accumulators([...rowSums, 'excess'], 'i32x4.splat(0)')}
    ${quads} {
      let h = v128.load32_splat(coefficients);
      let m = h;
      if (isSigned<T>()) {
        const isNegative = i8x16.lt_s(h, i8x16.splat(0));
        h = i8x16.abs(h);
        m = v128.xor(isNegative, zero);
        excess = dot(i8x16.splat(-1), v128.and(h, isNegative), excess);
      } else {
        excess = dot(h, zero, excess);
      }
      ${times(8, (s) => `s${s} = dotCodes<T>(h, m, ${load('codes', 16 * s)}, s${s}, ones);`)}
    }
    const factor = f32x4.splat(scale);
    ${addToColumns((name) => name)}
  }`;

const axpyNibbles = `
  /** The same for 4-bit codes by maddubs: the sums of pairs over 32 rows stay below \`2^15\`. */
  export function axpyNibbles(codes: usize, numQuads: i32, coefficients: usize, scale: f32, y: usize): void {
    const ones = onePairs();
    ${accumulators([...rowSums, 'excess'], 'i32x4.splat(0)')}
    ${quads} {
      const h = v128.load32_splat(coefficients);
      excess = i16x8.add(excess, pairs(h, i8x16.splat(8)));
      ${times(8, (s) => `s${s} = i16x8.add(s${s}, pairs(h, ${load('codes', 16 * s)}));`)}
    }
    const factor = f32x4.splat(scale);
    const none = i32x4.splat(0);
    excess = addPairs(none, excess, ones);
    ${addToColumns((name) => `addPairs(none, ${name}, ones)`)}
  }`;

const axpyImports = `
  import { dot, dotCodes, pairs } from '../quant/int8-dot';
  import { SUMS_BYTES } from '../runtime/layout.generated';
  import { flipSigns, nibbleMask, onePairs } from '../simd/constants.generated';
  import { highBytes, highPairs, lowBytes, lowPairs } from '../simd/interleave';
  import { highNibbles, lowNibbles } from '../simd/vector';
  import { LAST, SIGNS, START, STEPS, scaled } from './axpy-coefficients';`;

const coefficientImports = `
  import { halfMask, halfOffset, roundingMagic } from '../simd/constants.generated';
  import { halfToFloat4 } from '../simd/vector';
  import { highFloats, larger, lowFloats, narrowed, rounded, storeCodes, storeSteps } from './axpy-coefficients';`;

const tokenImports = `
  import { addPairs, dot, dotCodes, pairs } from '../quant/int8-dot';
  import { QUAD_BYTES } from '../runtime/layout.generated';
  import { halfMask, halfOffset, onePairs, roundingMagic } from '../simd/constants.generated';
  import { halfToFloat4, maxLane, normalHalves } from '../simd/vector';
  import { addColumns, areNormal, larger, rounded } from './axpy-coefficients';`;

export const axpyFiles: ReadonlyMap<string, string> = new Map([
  [
    'ffn/axpy.generated.ts',
    file('axpy microkernels over eight rows of q8_0 or q4_0.', axpyImports, [
      ...[plain, repacked].flatMap((layout) => [axpyQ8(layout), axpyQ4(layout), axpyQ4Maddubs(layout)]),
      axpyBlocks,
    ]),
  ],
  [
    'ffn/axpy-coefficients.generated.ts',
    file('Coefficients of axpy over eight rows.', coefficientImports, [coefficients()]),
  ],
  [
    'ffn/axpy-tokens.generated.ts',
    file('axpy microkernels over interleaved codes of up to 32 rows, for many tokens.', tokenImports, [
      ...[tokenCoefficients(), axpyCodes, axpyNibbles],
    ]),
  ],
]);
