import type { Expected, KernelCase } from '../kernel-case.js';
import { floats, gaussian, lengths, numbersOf, gaussianWith } from '../values.js';

interface Activity {
  readonly numTokens: number;
  readonly numNeurons: number;
  /** Level of the thresholds: the lower, the more neurons are active. */
  readonly level: number;
  readonly absolute?: boolean;
  readonly maxRatio?: number;
  readonly content?: 'gaussian' | 'ties' | 'special';
}

function activityCase({
  numTokens,
  numNeurons,
  level,
  absolute = false,
  maxRatio = 1,
  content = 'gaussian',
}: Activity): KernelCase {
  return {
    op: 'active-neurons',
    name:
      `${numTokens} x ${numNeurons}, thresholds near ${level}${absolute ? ', magnitudes' : ''}` +
      `${maxRatio === 1 ? '' : `, at most ${maxRatio}`}${content === 'gaussian' ? '' : `, ${content}`}`,
    dtypes: {},
    attributes: { absolute, maxRatio },
    create(rng) {
      const shape = [numTokens, numNeurons];
      const scores =
        content === 'special'
          ? gaussianWith(rng, shape, [0, -0, NaN, Infinity, -Infinity, 1e-40, -1e-40], 0)
          : floats(
              shape,
              Float32Array.from({ length: numTokens * numNeurons }, () =>
                content === 'ties' ? rng.nextInt(5) - 2 : rng.nextGaussian(),
              ),
              0,
            );
      const thresholds =
        content === 'ties'
          ? floats([numNeurons], new Float32Array(numNeurons).fill(level))
          : gaussian(rng, [numNeurons], 0.3);
      if (content !== 'ties') {
        const values = new Float32Array(thresholds.bytes.buffer, thresholds.bytes.byteOffset, numNeurons);
        for (let f = 0; f < numNeurons; f++) values[f] += level;
      }
      const [ss, ts] = [numbersOf(scores), numbersOf(thresholds)];
      const active = Array.from({ length: numNeurons }, (_, f) => f).filter((f) =>
        Array.from({ length: numTokens }, (_, t) => ss[t * numNeurons + f]).some(
          (score) => Number.isNaN(score) || (absolute ? Math.abs(score) : score) >= ts[f],
        ),
      );
      const isTooMany = active.length > Math.fround(maxRatio) * numNeurons;
      const count = isTooMany ? numNeurons : active.length;
      const ids = Int32Array.from({ length: numNeurons }, (_, j) => (isTooMany ? j : (active[j] ?? 0)));
      const integers = (values: Int32Array): Expected => ({ kind: 'integers', values });
      return {
        inputs: { scores, thresholds },
        expected: { ids: integers(ids), count: integers(Int32Array.of(count)) },
      };
    },
  };
}

export const activeNeuronsCases: readonly KernelCase[] = [
  ...lengths.flatMap((numNeurons) => [
    activityCase({ numTokens: 1, numNeurons, level: 1 }),
    activityCase({ numTokens: 3, numNeurons, level: 0.5, absolute: true, maxRatio: 0.75 }),
  ]),
  ...[0, 1, 2, 5].flatMap((numTokens) => [
    activityCase({ numTokens, numNeurons: 79, level: 0, content: 'ties' }),
    activityCase({ numTokens, numNeurons: 79, level: 0, absolute: true, content: 'ties', maxRatio: 0.9 }),
    activityCase({ numTokens, numNeurons: 70, level: 3, content: 'special' }),
    activityCase({ numTokens, numNeurons: 70, level: 3, absolute: true, content: 'special' }),
    activityCase({ numTokens, numNeurons: 5000, level: 2 }),
    activityCase({ numTokens, numNeurons: 5000, level: 9 }),
    activityCase({ numTokens, numNeurons: 5000, level: -9, absolute: true }),
    activityCase({ numTokens, numNeurons: 5000, level: 1, maxRatio: 0.1 }),
  ]),
  activityCase({ numTokens: 1, numNeurons: 64, level: 0, maxRatio: 0, content: 'ties' }),
];
