/**
 * Loops that measure a machine: memory bandwidth, multiply-adds of floats and of 8-bit integers. The arithmetic loops keep ten
 * independent sums and load one operand of every two operations, so that neither latency nor memory limits them.
 */
import { accumulators, block, file, kernel, load, names, times, type Lines } from './emit.ts';
import { probeSteps } from '../memory-layout.ts';

/** Reads four streams: one alone leaves some of the memory bandwidth unused. */
function readMemory(): Lines {
  const streams = names('s', 4);
  return kernel({
    name: 'readMemory',
    doc: 'Reads `sizeBytes` (a multiple of 256) as four streams and returns their sum, so that nothing can be left out.',
    parameters: ['begin: usize', 'sizeBytes: usize'],
    returns: 'i32',
    body: [
      'const quarter = sizeBytes >> 2;',
      ...accumulators(streams, 'i32x4.splat(0)'),
      ...block('for (let p0 = begin, end = begin + quarter; p0 < end; p0 += 64)', [
        ...times(3, (i) => `const p${i + 1} = p${i} + quarter;`),
        ...times(4, (i) => times(4, (v) => `s${i} = i32x4.add(s${i}, ${load(`p${i}`, 16 * v)});`)),
      ]),
      'return sumI4(i32x4.add(i32x4.add(s0, s1), i32x4.add(s2, s3)));',
    ],
  });
}

interface Arithmetic {
  readonly name: string;
  readonly doc: string;
  readonly lanes: 'f32x4' | 'i32x4';
  readonly constants: Lines;
  step(y: string, x: string, sum: string): string;
  readonly result: string;
}

/** Passes of eight times ten operations with operands from 640 bytes. */
function arithmetic({ name, doc, lanes, constants, step, result }: Arithmetic): Lines {
  const sums = names('s', 10);
  const add = (a: string, b: string): string => `${lanes}.add(${a}, ${b})`;
  return kernel({
    ...{ name, doc, parameters: ['data: usize', 'passes: i32'], returns: 'i32' },
    body: [
      ...constants,
      `const x0 = ${load('data')};`,
      `const x1 = ${load('data', 16)};`,
      'const begin = data + 32;',
      ...accumulators(sums, `${lanes}.splat(0)`),
      ...block('for (let pass = 0; pass < passes; pass++)', [
        ...block(`for (let p = begin, end = begin + ${probeSteps * 80}; p < end; p += 80)`, [
          ...times(5, (i) => [
            `const y${i} = ${load('p', 16 * i)};`,
            `s${2 * i} = ${step(`y${i}`, 'x0', `s${2 * i}`)};`,
            `s${2 * i + 1} = ${step(`y${i}`, 'x1', `s${2 * i + 1}`)};`,
          ]),
        ]),
      ]),
      `s0 = ${add(add('s0', 's1'), add('s2', 's3'))};`,
      `s4 = ${add(add('s4', 's5'), add('s6', 's7'))};`,
      `return ${result.replace('sums', add(add('s0', 's4'), add('s8', 's9')))};`,
    ],
  });
}

export const rooflineFiles: ReadonlyMap<string, string> = new Map([
  [
    'runtime/roofline-loops.generated.ts',
    file(
      'Loops that measure memory bandwidth and arithmetic.',
      [
        "import { onePairs } from '../simd/constants';",
        "import { fma, sum4, sumI4 } from '../simd/vector';",
        "import { dotStep } from './roofline-loops';",
      ],
      [
        readMemory(),
        arithmetic({
          name: 'multiplyAdds',
          doc: 'Multiply-adds as this build has them, 4 lanes: 640 operations per pass.',
          lanes: 'f32x4',
          constants: [],
          step: (y, x, sum) => `fma(${y}, ${x}, ${sum})`,
          result: '<i32>sum4(sums)',
        }),
        arithmetic({
          name: 'integerDotsBy<T>',
          doc: '8-bit dot products, 2560 operations per pass, or of 16 bits, 1280 per pass; by maddubs where T is i16.',
          lanes: 'i32x4',
          constants: ['const ones = onePairs();'],
          step: (y, x, sum) => `dotStep<T>(${y}, ${x}, ${sum}, ones)`,
          result: 'i32x4.extract_lane(sums, 0)',
        }),
      ],
    ),
  ],
]);
