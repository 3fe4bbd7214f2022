import type { KernelCase } from '../kernel-case.js';
import { ints, lengths } from '../values.js';

function clampCase(numTokens: number, limit: number): KernelCase {
  return {
    op: 'clamp-positions',
    name: `${numTokens} positions, at most ${limit}`,
    dtypes: {},
    attributes: { limit },
    create(rng) {
      const positions = Int32Array.from({ length: numTokens }, () => rng.nextInt(20));
      return {
        inputs: { positions: ints([numTokens], positions, 0) },
        expected: {
          y: { kind: 'integers', values: positions.map((position) => (position < limit ? position : limit)) },
        },
      };
    },
  };
}

export const clampPositionsCases: readonly KernelCase[] = [
  ...lengths.map((length) => clampCase(length, 9)),
  clampCase(8, 0),
  clampCase(8, 2 ** 31 - 1),
];
