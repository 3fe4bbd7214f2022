/**
 * Templates of axpy over rows of q8_0 or q4_0 that lie anywhere: adds the rows, each times a coefficient, to 32 columns at a time. Of
 * eight rows every one is read by a single load in a loop: processors prefetch load by load, and for few of them.
 */
import { numRows, pointers, rowPointers, rowSums } from './eight-rows.ts';
import {
  accumulators,
  advance,
  block,
  choice,
  file,
  kernel,
  load,
  splat16,
  splat32,
  store,
  names,
  times,
  type Lines,
} from './emit.ts';

/** How rows lie in memory: as in files, block by block, or repacked, the scales of four blocks before their codes. */
interface RowLayout {
  readonly suffix: string;
  readonly doc: string;
  /** Where the codes of a block begin, seen from the pointer. */
  readonly codesAt: number;
  /** Bytes between the codes of one block and the next. */
  readonly gap: number;
  /** Whether codes of q8_0 are signed, so that their sign bits are flipped. */
  readonly isSigned: boolean;
}

const plain: RowLayout = { suffix: '', doc: 'as they lie in files', codesAt: 2, gap: 2, isSigned: true };
const repacked: RowLayout = { suffix: 'Repacked', doc: 'repacked', codesAt: 8, gap: 0, isSigned: false };

const axpyParameters = [
  'rows: usize',
  'offset: usize',
  'count: i32',
  'known: usize',
  'from: usize',
  'step: usize',
  'to: usize',
];

/** The names of the vectors of codes that are interleaved: those of rows 0 to 3, then those of rows 4 to 7. */
const quads = [
  { bytes: ['a', 'b', 'c', 'd'], pairs: ['ab', 'cd'] },
  { bytes: ['e', 'f', 'g', 'j'], pairs: ['ef', 'gj'] },
] as const;

/** Adds sums times their unit to what was there, and stores it. */
function addSums(sums: string, offset: number): string {
  return store('to', `scaled(${sums}, unit, ${load('from', offset)})`, offset);
}

/** q8_0: 16 columns after 16. T as for `dotCodes`. */
function axpyQ8({ suffix, doc, codesAt, gap, isSigned }: RowLayout): Lines {
  const codes = (row: number): string => {
    const vector = load(`p${row}`, codesAt);
    return isSigned ? `v128.xor(${vector}, flip)` : vector;
  };
  const quad = (index: number): Lines => {
    const [x, signs] = index === 0 ? ['h', 'm'] : ['i', 'n'];
    const declare = index === 0 ? 'let ' : '';
    const sum = (s: number): string => (index === 0 ? 'start' : `s${s}`);
    return [
      ...times(4, (row) => `${declare}${quads[0].bytes[row]} = ${codes(4 * index + row)};`),
      ...(['low', 'high'] as const).flatMap((part, half) => [
        `${half === 0 ? declare : ''}ab = ${part}Bytes(a, b);`,
        `${half === 0 ? declare : ''}cd = ${part}Bytes(c, d);`,
        `${declare}s${2 * half} = dotCodes<T>(${x}, ${signs}, lowPairs(ab, cd), ${sum(2 * half)}, ones);`,
        `${declare}s${2 * half + 1} = dotCodes<T>(${x}, ${signs}, highPairs(ab, cd), ${sum(2 * half + 1)}, ones);`,
      ]),
    ];
  };
  return kernel({
    name: `axpyQ8${suffix}<T>`,
    doc: `Adds \`count\` blocks of eight rows of q8_0, ${doc}, times their coefficients at \`known\`.`,
    parameters: axpyParameters,
    body: [
      'const ones = onePairs();',
      ...(isSigned ? ['const flip = flipSigns();'] : []),
      ...rowPointers,
      ...block('for (const end = to + (<usize>count << 7); to < end; known += 4)', [
        `const h = ${splat32('known')};`,
        `const i = ${splat32('known', 'LAST')};`,
        `const m = isSigned<T>() ? ${splat32('known', 'SIGNS')} : h;`,
        `const n = isSigned<T>() ? ${splat32('known', 'SIGNS + LAST')} : i;`,
        `const start = ${splat32('known', 'START')};`,
        `const unit = ${splat32('known', 'STEPS')};`,
        ...block('for (const stop = to + 128; to < stop; to += 64, from += step >> 1)', [
          ...quad(0),
          ...quad(1),
          ...times(4, (s) => addSums(`s${s}`, 16 * s)),
          ...advance(pointers, 16),
        ]),
        ...(gap > 0 ? advance(pointers, gap) : []),
      ]),
    ],
  });
}

/** q4_0: columns 4 i and 16 + 4 i side by side. */
function axpyQ4({ suffix, doc, codesAt, gap }: RowLayout): Lines {
  const part = (bytes: 'low' | 'high', pairs: 'low' | 'high', index: number): Lines => [
    ...(pairs === 'high'
      ? []
      : quads.flatMap(({ bytes: [a, b, c, d], pairs: [ab, cd] }) => [
          `${index === 0 ? 'let ' : ''}${ab} = ${bytes}Bytes(${a}, ${b});`,
          `${index === 0 ? 'let ' : ''}${cd} = ${bytes}Bytes(${c}, ${d});`,
        ])),
    `${index === 0 ? 'let ' : ''}first = ${pairs}Pairs(ab, cd);`,
    `${index === 0 ? 'let ' : ''}last = ${pairs}Pairs(ef, gj);`,
    `${index === 0 ? 'let ' : ''}sums = dot(i, lowNibbles(last, low), dot(h, lowNibbles(first, low), start));`,
    addSums('sums', 16 * index),
    'sums = dot(i, highNibbles(last, low), dot(h, highNibbles(first, low), start));',
    addSums('sums', 64 + 16 * index),
  ];
  return kernel({
    name: `axpyQ4${suffix}`,
    doc: `Adds \`count\` blocks of eight rows of q4_0, ${doc}, times their coefficients at \`known\`.`,
    parameters: axpyParameters,
    body: [
      'const low = nibbleMask();',
      ...rowPointers,
      ...block('for (const end = to + (<usize>count << 7); to < end; known += 4, from += step, to += 128)', [
        `const h = ${splat32('known')};`,
        `const i = ${splat32('known', 'LAST')};`,
        `const start = ${splat32('known', 'START')};`,
        `const unit = ${splat32('known', 'STEPS')};`,
        ...quads.flatMap(({ bytes }, index) =>
          bytes.map((name, row) => `const ${name} = ${load(`p${4 * index + row}`, codesAt)};`),
        ),
        ...part('low', 'low', 0),
        ...part('low', 'high', 1),
        ...part('high', 'low', 2),
        ...part('high', 'high', 3),
        ...advance(pointers, 16 + gap),
      ]),
    ],
  });
}

/** The same by maddubs: sums of pairs of eight rows, and what sums begin with, add up to less than `2^15`. */
function axpyQ4Maddubs({ suffix, codesAt, gap, doc }: RowLayout): Lines {
  const pairOfRows = (pair: number): Lines => {
    const declare = pair === 0 ? 'let ' : '';
    const add = (sum: number, nibbles: string): string =>
      `s${sum} = i16x8.add(s${sum}, pairs(h, ${nibbles}Nibbles(ab, low)));`;
    return [
      `${declare}a = ${load(`p${2 * pair}`, codesAt)};`,
      `${declare}b = ${load(`p${2 * pair + 1}`, codesAt)};`,
      `${declare}h = ${splat16('known', 16 * (pair >> 1) + 2 * (pair % 2))};`,
      `${declare}ab = lowBytes(a, b);`,
      add(0, 'low'),
      add(2, 'high'),
      'ab = highBytes(a, b);',
      add(1, 'low'),
      add(3, 'high'),
    ];
  };
  return kernel({
    name: `axpyQ4Maddubs${suffix}`,
    doc: `Adds \`count\` blocks of eight rows of q4_0, ${doc}, by maddubs: all sums of pairs stay below \`2^15\`.`,
    parameters: axpyParameters,
    body: [
      'const low = nibbleMask();',
      ...rowPointers,
      ...block('for (const end = to + (<usize>count << 7); to < end; known += 4, from += step, to += 128)', [
        ...accumulators(names('s', 4), splat16('known', 'START')),
        ...times(4, pairOfRows),
        `const unit = ${splat32('known', 'STEPS')};`,
        ...times(4, (s) => [
          addSums(`i32x4.extend_low_i16x8_s(s${s})`, 32 * s),
          addSums(`i32x4.extend_high_i16x8_s(s${s})`, 32 * s + 16),
        ]),
        ...advance(pointers, 16 + gap),
      ]),
    ],
  });
}

/** Coefficients of four blocks of eight rows, from their scales: those of two rows in each vector. */
function coefficients(): Lines {
  const values = names('a', numRows);
  const scales = (low: (r: string) => string, high: (r: string) => string): Lines =>
    times(4, (pair) => [`a${2 * pair} = ${low(`r${pair}`)};`, `a${2 * pair + 1} = ${high(`r${pair}`)};`]);
  const larger = (first: number): string => `larger(a${first}, a${first + 1})`;
  const codes = (first: number): string =>
    `narrowed(${times(4, (row) => `rounded(a${first + row}, inverse, magic)`).join(', ')})`;
  return kernel({
    name: 'storeCoefficients',
    isInline: true,
    doc: 'Coefficients of four blocks, a block to each lane; `excess` is what codes of weights are too large by.',
    parameters: [
      ...['hasSigns: bool', 'isNormal: bool'],
      ...times(4, (pair) => `r${pair}: v128`),
      ...['h: usize', 'excess: v128', 'to: usize'],
    ],
    body: [
      ...values.map((name) => `let ${name}: v128;`),
      ...choice(
        'isNormal',
        [
          'const mask = halfMask();',
          'const bias = halfOffset();',
          ...scales(
            (r) => `lowFloats(${r}, mask, bias)`,
            (r) => `highFloats(${r}, mask, bias)`,
          ),
        ],
        scales(
          (r) => `halfToFloat4(i32x4.extend_low_i16x8_u(${r}))`,
          (r) => `halfToFloat4(i32x4.extend_high_i16x8_u(${r}))`,
        ),
      ),
      ...values.map((name, row) => `${name} = f32x4.mul(${name}, ${splat32('h', 4 * row)});`),
      `const low = i32x4.max_u(${larger(0)}, ${larger(2)});`,
      `const high = i32x4.max_u(${larger(4)}, ${larger(6)});`,
      'const inverse = storeSteps(i32x4.shr_u(i32x4.max_u(low, high), 1), to);',
      'const magic = roundingMagic();',
      `storeCodes(hasSigns, ${codes(0)}, ${codes(4)}, excess, to);`,
    ],
  });
}

/** The step and codes of 32 coefficients of a token: the numbers h times the scales of a block of all rows. */
function tokenCoefficients(): Lines {
  const values = names('a', numRows);
  const larger = (first: number): string => `larger(a${first}, a${first + 1})`;
  const integers = (i: number): string => `rounded(a${i}, inverse, magic)`;
  const words = (first: number): string => `i16x8.narrow_i32x4_s(${integers(first)}, ${integers(first + 1)})`;
  return kernel({
    name: 'tokenCoefficients',
    doc: 'Stores the codes of 32 coefficients `h * scale` and returns their step.',
    parameters: ['scales: usize', 'h: usize', 'codes: usize'],
    returns: 'f32',
    body: [
      ...values.map((name) => `let ${name}: v128;`),
      ...choice(
        'areNormalScales(scales)',
        [
          'const mask = halfMask();',
          'const offset = halfOffset();',
          ...values.map((name, i) => `${name} = normalHalves(v128.load16x4_s(scales, ${8 * i}), mask, offset);`),
        ],
        values.map((name, i) => `${name} = halfToFloat4(v128.load16x4_u(scales, ${8 * i}));`),
      ),
      ...values.map((name, i) => `${name} = f32x4.mul(${name}, ${load('h', 16 * i)});`),
      `const low = i32x4.max_u(${larger(0)}, ${larger(2)});`,
      `const high = i32x4.max_u(${larger(4)}, ${larger(6)});`,
      'const largest = reinterpret<f32>(maxU4(i32x4.max_u(low, high)) >> 1);',
      '// as for activations: what has no reciprocal counts as zero, and NaN makes the step NaN',
      'const isNothing = largest < 1e-36;',
      'const inverse = f32x4.splat(isNothing ? 0 : 127 / largest);',
      'const magic = roundingMagic();',
      store('codes', `i8x16.narrow_i16x8_s(${words(0)}, ${words(2)})`),
      store('codes', `i8x16.narrow_i16x8_s(${words(4)}, ${words(6)})`, 16),
      'return isNothing ? 0 : largest / 127;',
    ],
  });
}

/** Adds 32 interleaved columns of up to 32 rows, with eight sums. */
function axpyInterleaved(isPairs: boolean): Lines {
  const product = (s: number): string => {
    const codes = load('codes', 16 * s);
    return isPairs
      ? `s${s} = i16x8.add(s${s}, pairs(h, ${codes}));`
      : `s${s} = dotCodes<T>(h, m, ${codes}, s${s}, ones);`;
  };
  const excess = isPairs
    ? ['excess = i16x8.add(excess, pairs(h, i8x16.splat(8)));']
    : [
        'let m = h;',
        ...choice(
          'isSigned<T>()',
          [
            'const isNegative = i8x16.lt_s(h, i8x16.splat(0));',
            'h = i8x16.abs(h);',
            'm = v128.xor(isNegative, zero);',
            'excess = dot(i8x16.splat(-1), v128.and(h, isNegative), excess);',
          ],
          ['excess = dot(h, zero, excess);'],
        ),
      ];
  const total = (name: string): string => (isPairs ? `addPairs(none, ${name}, ones)` : name);
  return kernel({
    name: isPairs ? 'axpyNibbles' : 'axpyCodes<T>',
    doc: isPairs
      ? 'Codes of four bits by maddubs: those of 32 rows add up to less than `2^15`.'
      : 'T as for `dotCodes`; `zero` is what codes are too large by.',
    parameters: [
      ...(isPairs ? [] : ['zero: v128']),
      ...['codes: usize', 'numQuads: i32', 'coefficients: usize', 'scale: f32', 'y: usize'],
    ],
    body: [
      'const ones = onePairs();',
      ...accumulators([...rowSums, 'excess'], 'i32x4.splat(0)'),
      ...block(
        'for (const end = coefficients + (<usize>numQuads << 2); coefficients < end; coefficients += 4, codes += 128)',
        [`${isPairs ? 'const' : 'let'} h = ${splat32('coefficients')};`, ...excess, ...times(8, product)],
      ),
      'const factor = f32x4.splat(scale);',
      ...(isPairs ? ['const none = i32x4.splat(0);', `excess = ${total('excess')};`] : []),
      ...times(8, (s) => {
        const at = s === 0 ? 'y' : `y + ${16 * s}`;
        return `addColumns(${at}, i32x4.sub(${total(`s${s}`)}, excess), factor);`;
      }),
    ],
  });
}

const dotImports = "import { addPairs, dot, dotCodes, pairs } from '../gemm/int8-dot';";

export const axpyFiles: ReadonlyMap<string, string> = new Map([
  [
    'ffn/axpy.generated.ts',
    file(
      'axpy microkernels over eight rows of q8_0 or q4_0.',
      [
        "import { dot, dotCodes, pairs } from '../gemm/int8-dot';",
        "import { flipSigns, nibbleMask, onePairs } from '../simd/constants';",
        "import { highBytes, highPairs, lowBytes, lowPairs } from '../simd/interleave';",
        "import { highNibbles, lowNibbles } from '../simd/vector';",
        "import { LAST, SIGNS, START, STEPS, scaled } from './axpy-coefficients';",
      ],
      [plain, repacked].flatMap((layout) => [axpyQ8(layout), axpyQ4(layout), axpyQ4Maddubs(layout)]),
    ),
  ],
  [
    'ffn/axpy-coefficients.generated.ts',
    file(
      'Coefficients of axpy over eight rows.',
      [
        "import { halfMask, halfOffset, roundingMagic } from '../simd/constants';",
        "import { halfToFloat4 } from '../simd/vector';",
        "import { highFloats, larger, lowFloats, narrowed, rounded, storeCodes, storeSteps } from './axpy-coefficients';",
      ],
      [coefficients()],
    ),
  ],
  [
    'ffn/axpy-tokens.generated.ts',
    file(
      'axpy microkernels over interleaved codes of up to 32 rows, for many tokens.',
      [
        dotImports,
        "import { halfMask, halfOffset, onePairs, roundingMagic } from '../simd/constants';",
        "import { halfToFloat4, maxU4, normalHalves } from '../simd/vector';",
        "import { addColumns, larger, rounded } from './axpy-coefficients';",
        "import { areNormalScales } from './axpy-tokens';",
      ],
      [tokenCoefficients(), axpyInterleaved(false), axpyInterleaved(true)],
    ),
  ],
]);
