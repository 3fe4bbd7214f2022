import type { Rng } from '@winnow/tensor';
import type { KernelCase } from '../kernel-case.js';
import { close, floats, numbersOf } from '../values.js';
import type { CaseTensor } from '../kernel-case.js';

type State = readonly [m: CaseTensor, l: CaseTensor, o: CaseTensor];

/** Random states; every third part of a row is empty, and some rows are empty throughout. */
function randomState(rng: Rng, numParts: number, numTokens: number, numHeads: number, dim: number): State {
  const numRows = numTokens * numHeads;
  const isEmpty = Array.from({ length: numParts * numRows }, (_, i) => rng.nextInt(3) === 0 || i % numRows === 1);
  const m = isEmpty.map((empty) => (empty ? -Infinity : rng.nextGaussian() * 20));
  const l = isEmpty.map((empty) => (empty ? 0 : 1 + rng.nextFloat() * 9));
  const o = Array.from({ length: isEmpty.length * dim }, (_, i) =>
    isEmpty[Math.floor(i / dim)] ? 0 : rng.nextGaussian() * 3,
  );
  return [
    floats([numParts, numTokens, numHeads], m, 1),
    floats([numParts, numTokens, numHeads], l, 1),
    floats([numParts, numTokens, numHeads, dim], o, 1),
  ];
}

interface MergeShape {
  readonly numParts: number;
  readonly numSecondParts: number;
  readonly numTokens: number;
  readonly numHeads: number;
  readonly dim: number;
}

function mergeCase({ numParts, numSecondParts, numTokens, numHeads, dim }: MergeShape): KernelCase {
  return {
    op: 'attention-merge',
    name: `${numParts} + ${numSecondParts} parts, ${numTokens} x ${numHeads} x ${dim}`,
    dtypes: {},
    attributes: {},
    // the maximum is exact; a part is rescaled at most once per merge, by an exp of a rounded difference
    create(rng, { unit, elementary, tiny }) {
      const first = randomState(rng, numParts, numTokens, numHeads, dim);
      const second = randomState(rng, numSecondParts, numTokens, numHeads, dim);
      const numRows = numTokens * numHeads;
      const rows = Array.from({ length: numRows }, (_, row) =>
        [first, second].flatMap(([m, l, o]) => {
          const [ms, ls, os] = [numbersOf(m), numbersOf(l), numbersOf(o)];
          return Array.from({ length: m.shape[0] }, (_, part) => {
            const at = part * numRows + row;
            return { m: ms[at], l: ls[at], o: os.subarray(at * dim, (at + 1) * dim) };
          });
        }),
      );
      const total = numParts + numSecondParts;
      const sum = (row: number, pick: (part: { l: number; o: Float64Array }) => number): readonly [number, number] => {
        const max = Math.max(...rows[row].map(({ m }) => m));
        let value = 0;
        let bound = 2 * total * tiny;
        for (const part of rows[row]) {
          if (part.m === -Infinity) continue;
          const term = pick(part) * Math.exp(part.m - max);
          value += term;
          bound += Math.abs(term) * (total * (elementary + 3 * unit) + 2 * unit * (max - part.m));
        }
        return [value, bound + 2 ** -126];
      };
      const expected = {
        m: close(numRows, (row) => [Math.max(...rows[row].map(({ m }) => m)), 0]),
        l: close(numRows, (row) => sum(row, ({ l }) => l)),
        o: close(numRows * dim, (index) => sum(Math.floor(index / dim), ({ o }) => o[index % dim])),
      };
      const [m, l, o] = first;
      const [m2, l2, o2] = second;
      return { inputs: { m, l, o, ...(numSecondParts === 0 ? {} : { m2, l2, o2 }) }, expected };
    },
  };
}

export const attentionMergeCases: readonly KernelCase[] = [
  ...[1, 2, 3, 8, 17].map((numParts) => ({ numParts, numSecondParts: 0, numTokens: 3, numHeads: 2, dim: 16 })),
  ...[1, 2, 5].map((numSecondParts) => ({ numParts: 2, numSecondParts, numTokens: 2, numHeads: 3, dim: 33 })),
  ...[1, 7, 64, 129].map((dim) => ({ numParts: 4, numSecondParts: 1, numTokens: 1, numHeads: 5, dim })),
  { numParts: 2, numSecondParts: 0, numTokens: 0, numHeads: 2, dim: 8 },
  { numParts: 3, numSecondParts: 0, numTokens: 33, numHeads: 4, dim: 8 },
].map(mergeCase);
