import { ropeFrequencies, type RopeScaling } from '@winnow/ops';
import type { KernelCase } from '../kernel-case.js';
import { close, floats, ints, numbersOf, gaussianWith } from '../values.js';

interface RopeCase {
  readonly layout: 'neighbors' | 'halves';
  readonly headDim: number;
  readonly rotaryDim: number;
  readonly numHeads: number;
  readonly positions: readonly number[];
  readonly scaling?: RopeScaling;
  /** The row of frequencies of each token, of a table with a row for each of `rowScalings`. */
  readonly rows?: readonly number[];
}

const scalings: readonly (RopeScaling | undefined)[] = [
  undefined,
  { type: 'linear', factor: 4 },
  { type: 'ntk', factor: 8 },
  { type: 'yarn', factor: 16, originalContextLength: 4096 },
  { type: 'llama3', factor: 8, originalContextLength: 8192, lowFreqFactor: 1, highFreqFactor: 4 },
];

const rowScalings = [1, 2.5, 7];

function ropeCase({ layout, headDim, rotaryDim, numHeads, positions, scaling, rows }: RopeCase): KernelCase {
  const options = { base: 10000, rotaryDim, ...(scaling === undefined ? {} : { scaling }) };
  const { frequencies: usual, amplitude } = ropeFrequencies(options);
  const tables = rowScalings.map((factor) => ropeFrequencies({ ...options, scaling: { type: 'ntk', factor } }));
  const frequencies = rows === undefined ? [...usual] : tables.flatMap((table) => [...table.frequencies]);
  const numPairs = rotaryDim / 2;
  return {
    op: 'rope',
    name:
      `${layout}, ${scaling?.type ?? 'plain'}, ${rotaryDim} of ${headDim} dims, ${numHeads} heads, ` +
      `positions ${positions.join(' ')}${rows === undefined ? '' : `, rows ${rows.join(' ')}`}`,
    dtypes: {},
    attributes: { layout, amplitude, ...(rows === undefined ? {} : { numPairs }) },
    // the angle is a float32 product, off by a unit of itself, and may be reduced with another; then two products, a sum
    create(rng, { unit, elementary, tiny }) {
      const shape = [positions.length, numHeads, headDim];
      const x = gaussianWith(rng, shape, [0, -0, 1000, -1000, 1e-40], 0);
      const xs = numbersOf(x);
      const factor = Math.fround(amplitude);
      const y = close(xs.length, (index) => {
        const dim = index % headDim;
        if (dim >= rotaryDim) return [xs[index], 0];
        const pair = layout === 'neighbors' ? dim >> 1 : dim % numPairs;
        const isFirst = layout === 'neighbors' ? dim % 2 === 0 : dim < numPairs;
        const distance = layout === 'neighbors' ? 1 : numPairs;
        const partner = xs[isFirst ? index + distance : index - distance];
        const token = Math.floor(index / (numHeads * headDim));
        const angle = positions[token] * frequencies[(rows?.[token] ?? 0) * numPairs + pair];
        // the real or imaginary part of (a + bi) * exp(i angle)
        const value = xs[index] * Math.cos(angle) + (isFirst ? -1 : 1) * partner * Math.sin(angle);
        const magnitude = (Math.abs(xs[index]) + Math.abs(partner)) * factor;
        return [value * factor, magnitude * (2 * unit * Math.abs(angle) + elementary + 4 * unit) + 3 * tiny];
      });
      const inputs = {
        x,
        positions: ints([positions.length], positions, 0),
        frequencies: floats([frequencies.length], frequencies),
        ...(rows === undefined ? {} : { rows: ints([rows.length], rows, 0) }),
      };
      return { inputs, expected: { y } };
    },
  };
}

export const ropeCases: readonly KernelCase[] = (['neighbors', 'halves'] as const).flatMap((layout) => [
  ...scalings.map((scaling) =>
    ropeCase({ layout, headDim: 64, rotaryDim: 64, numHeads: 3, positions: [0, 1, 5000], ...(scaling && { scaling }) }),
  ),
  ...[2, 6, 16, 32, 34, 66, 128].map((headDim) =>
    ropeCase({ layout, headDim, rotaryDim: headDim, numHeads: 2, positions: [7, 0, 131071] }),
  ),
  ...[2, 8, 20, 32, 62].map((rotaryDim) =>
    ropeCase({ layout, headDim: 64, rotaryDim, numHeads: 5, positions: [3, 4, 9, 1] }),
  ),
  ropeCase({ layout, headDim: 34, rotaryDim: 32, numHeads: 2, positions: [5000, 3, 4, 5000], rows: [2, 0, 1, 0] }),
  ropeCase({ layout, headDim: 65, rotaryDim: 32, numHeads: 1, positions: [11] }),
  ropeCase({ layout, headDim: 32, rotaryDim: 32, numHeads: 4, positions: [] }),
  ropeCase({ layout, headDim: 8, rotaryDim: 8, numHeads: 1, positions: Array.from({ length: 33 }, (_, t) => t * 31) }),
]);
