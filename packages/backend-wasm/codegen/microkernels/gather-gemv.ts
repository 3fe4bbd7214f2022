/**
 * Template of gather-GEMV: eight repacked rows of q8_0 or q4_0 at arbitrary addresses times activations. The loop has a
 * single load instruction for each row, because hardware prefetchers track load instructions, and only a few of them.
 */
import { axpyRows, pointers, rowPointers, rowSums } from './eight-rows.ts';
import { accumulators, advance, file, load, times } from './emit.ts';

interface Gemv {
  readonly name: string;
  readonly doc: string;
  readonly constants: string;
  /** Initial value of the sums of a row. */
  readonly first: string;
  /** Bytes of activations that the inner loop reads. */
  readonly laneBytes: string;
  /** Offset of the factors of the scales after the inner loop. */
  readonly factorsAt: number | string;
  readonly operands: string;
  /** Adds the codes at a pointer to the sums. */
  add(pointer: string, sum: string): string;
  readonly whole: (sum: string) => string;
  readonly codeBytes: number;
  readonly nextLanes: string;
}

const gemvQ8: Gemv = {
  name: 'gatherGemvQ8',
  doc: 'Eight repacked rows of q8_0 times activations. T as for `dotCodes`.',
  ...{ constants: 'const ones = onePairs();', first: 'starts', laneBytes: 'FACTORS', factorsAt: 0 },
  operands: `
    const u = v128.load(x);
    const v = v128.load(x, 16);
    const m = isSigned<T>() ? v128.load(x, SIGNS) : u;
    const n = isSigned<T>() ? v128.load(x, SIGNS + 16) : v;`,
  add: (pointer, sum) => `addQ8<T>(${pointer}, u, v, m, n, ones, ${sum})`,
  ...{ whole: (sum) => sum, codeBytes: 128 },
  nextLanes: '(isSigned<T>() ? SIGN_MAGNITUDE_BYTES : LANES_BYTES) - FACTORS',
};

const gemvQ4: Gemv = {
  name: 'gatherGemvQ4',
  doc: 'Eight repacked rows of q4_0 times activations; by maddubs where T is i16.',
  constants: 'const low = nibbleMask();',
  first: 'sizeof<T>() === 2 ? i16x8.splat(0) : starts',
  ...{ laneBytes: 'FACTORS / 2', factorsAt: 'FACTORS / 2' },
  operands: `
    const u = v128.load(x);
    const v = v128.load(x, 64);
    const w = v128.load(x, 16);
    const z = v128.load(x, 80);`,
  add: (pointer, sum) => `addQ4<T>(${pointer}, u, v, w, z, low, ${sum})`,
  ...{ whole: (sum) => `wholeSums<T>(${sum}, starts)`, codeBytes: 64, nextLanes: 'LANES_BYTES - FACTORS / 2' },
};

function gatherGemv({ name, doc, add, whole, ...kind }: Gemv): string {
  const addScaled = (row: number): string =>
    `addScaled(sums + ${16 * row}, ${whole(`s${row}`)}, p${row} - ${kind.codeBytes}, mask, factors);`;
  return `
    /** ${doc} */
    export function ${name}<T>(rows: usize, offset: usize, x: usize, end: usize, sums: usize): void {
      const mask = halfMask();
      ${kind.constants}
      ${rowPointers}
      while (x < end) {
        const starts = v128.load(x, STARTS);
        ${accumulators(rowSums, kind.first)}
        for (const stop = x + ${kind.laneBytes}; x < stop; x += 32) {
          ${kind.operands}
          ${times(axpyRows, (row) => `s${row} = ${add(`p${row}`, `s${row}`)};`)}
          ${advance(pointers, 32)}
        }
        const factors = ${load('x', kind.factorsAt)};
        ${times(axpyRows, addScaled)}
        x += ${kind.nextLanes};
        ${advance(pointers, 8)}
      }
    }`;
}

const imports = `
  import { halfMask, nibbleMask, onePairs } from '../simd/constants.generated';
  import { FACTORS, LANES_BYTES, SIGNS, SIGN_MAGNITUDE_BYTES, STARTS } from './repacked-lanes';
  import { addQ8, addQ4, addScaled, wholeSums } from './repacked-lanes';`;

export const gatherGemvFiles: ReadonlyMap<string, string> = new Map([
  [
    'ffn/gather-gemv.generated.ts',
    file('Gather-GEMV microkernels over eight repacked rows.', imports, [gatherGemv(gemvQ8), gatherGemv(gemvQ4)]),
  ],
]);
