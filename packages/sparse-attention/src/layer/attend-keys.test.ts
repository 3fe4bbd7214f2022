import { mergeState, type PartialStates } from '@winnow/ops';
import { ArgumentError, ShapeError } from '@winnow/tensor';
import { expect, it } from 'vitest';
import { describeBackends } from '../../test/backends.js';
import { denseTruth, largestDifference, randomTensor, truth, wasmBound } from '../../test/dense-truth.js';
import { attendKeys } from './attend-keys.js';
import { attend } from './attend.js';

const [q, k, v] = [randomTensor(1, 40, 4, 8), randomTensor(2, 40, 2, 8), randomTensor(3, 40, 2, 8)];
const bound = wasmBound({ q, k, v });

describeBackends('attention to chosen keys', (backend) => {
  it('attends to the keys of each head only, and gives zeros without keys', async () => {
    const keysOf = (query: number, head: number): number[] =>
      Array.from({ length: query }, (_, j) => j).filter((j) => j % (head + 1) === 0);
    const { out, states } = await attendKeys(q, k, v, keysOf, { backend, scale: 0.3 });
    for (let head = 0; head < 4; head++) {
      expect([...out.row(0, head)]).toEqual(Array.from({ length: 8 }, () => 0));
      expect([states.m[head], states.l[head]]).toEqual([-Infinity, 0]);
      const keys = keysOf(33, head).map((j) => ({ key: k.row(j, head >> 1), value: v.row(j, head >> 1) }));
      truth(q.row(33, head), keys, 0.3).forEach((value, d) => {
        expect(Math.abs(out.row(33, head)[d] - value)).toBeLessThan(bound);
      });
    }
  });

  it('states of disjoint keys merge to dense attention, also with those of a sparse policy', async () => {
    const visited: Set<number>[] = [];
    await attend('sparq:rank=4,topk=6,mean=false', q, k, v, {
      backend,
      onVisit({ query, firstHead, numHeads, tokens }) {
        for (let head = firstHead; head < firstHead + numHeads; head++) visited[query * 4 + head] = new Set(tokens);
      },
    });
    const keysOf =
      (isVisited: boolean) =>
      (query: number, head: number): number[] =>
        Array.from({ length: query + 1 }, (_, j) => j).filter((j) => visited[query * 4 + head]?.has(j) === isVisited);
    const near: PartialStates = (await attendKeys(q, k, v, keysOf(true), { backend })).states;
    const far: PartialStates = (await attendKeys(q, k, v, keysOf(false), { backend })).states;
    const expected = denseTruth(q, k, v);
    for (let row = 0; row < 160; row++) {
      mergeState(near, row, far, row, 8);
      for (let d = 0; d < 8; d++) {
        const merged = (near.o[row * 8 + d] ?? NaN) / (near.l[row] ?? NaN);
        expect(Math.abs(merged - (expected.data[row * 8 + d] ?? NaN))).toBeLessThan(bound);
      }
    }
  });

  it('splits long block tables into runs', async () => {
    const [manyQ, manyK] = [randomTensor(4, 600, 1, 4), randomTensor(5, 600, 1, 4)];
    const all = Array.from({ length: 600 }, (_, j) => j);
    const { out } = await attendKeys(manyQ, manyK, manyK, () => all, { backend });
    const expected = denseTruth(manyQ, manyK, manyK, false);
    expect(largestDifference(out, expected)).toBeLessThan(wasmBound({ q: manyQ, k: manyK, v: manyK }));
  });
});

it('rejects invalid rows and shapes', async () => {
  await expect(attendKeys(q, k, v, () => [40])).rejects.toThrow(ArgumentError);
  await expect(attendKeys(q, k, v, () => [40])).rejects.toThrow('rows below 40');
  await expect(attendKeys(randomTensor(1, 1, 3, 8), k, v, () => [0])).rejects.toThrow(ShapeError);
});
