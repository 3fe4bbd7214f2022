import { attend, parsePolicy, type PageTopKPolicy } from '@winnow/sparse-attention';
import { describe, expect, it } from 'vitest';
import { measureAttention, meanQuality } from './attention-quality.js';
import { measureCertificates } from './certificates.js';
import { syntheticCaptures } from './synthetic.js';
import { bytesRead } from './traffic.js';
import { createVisitMaps } from './visit-map.js';

const captures = syntheticCaptures(96, 1);
const [local] = captures;

it('bytes of a query by hand', () => {
  const options = { denseKeys: 100, visited: 20, headDim: 8 };
  expect(bytesRead(parsePolicy('dense'), { ...options, visited: 100 })).toBe(100 * 16 * 4);
  expect(bytesRead(parsePolicy('streaming'), options)).toBe(20 * 16 * 4);
  // rank 4 of all keys, 20 rows of both, 4 d for the mean value and the query
  expect(bytesRead(parsePolicy('sparq:rank=4,topk=20'), options)).toBe((100 * 4 + 20 * 16 + 32) * 4);
  // 7 pages of 16 with two corners each
  expect(bytesRead(parsePolicy('page-topk:page=16'), options)).toBe((20 * 16 + 7 * 16) * 4);
  expect(bytesRead(parsePolicy('oracle-topk'), options)).toBe((100 * 8 + 20 * 8) * 4);
});

describe('attention quality', () => {
  it('dense is exact, and reads everything', async () => {
    const { mean, heads } = await measureAttention(parsePolicy('dense'), local, 48);
    expect(heads).toHaveLength(2);
    expect(mean.error).toBeLessThan(1e-5); // f32 outputs
    expect([mean.density, mean.recall, mean.bytesRead / mean.denseBytes]).toEqual([1, 1, 1]);
  });

  it('streaming with an unlimited window equals dense, with remapped queries', async () => {
    const { mean } = await measureAttention(parsePolicy('streaming:window=96,sinks=0'), local, 48);
    expect(mean.error).toBeLessThan(1e-5);
  });

  it('means over layers, extremes over all layers', async () => {
    const streaming = parsePolicy('streaming:window=16,sinks=2');
    const layers = await Promise.all(captures.map((capture) => measureAttention(streaming, capture, 48)));
    const mean = meanQuality(layers);
    expect(mean.errorMax).toBe(Math.max(...layers.map((layer) => layer.mean.errorMax)));
    expect(mean.density).toBeCloseTo(18 / 72.5, 12); // 18 of the 49 to 96 keys
    expect(mean.oracleMass).toBeGreaterThanOrEqual(mean.mass);
  });
});

it('a certificate bounds the missing mass', async () => {
  const policy = parsePolicy('page-topk:budget=1,page=8,window=8') as PageTopKPolicy;
  for (const capture of captures) {
    const { certificate, missing, density, numQueries, lengths } = await measureCertificates(policy, capture, 48);
    expect(numQueries).toBe(48 * 2);
    expect(lengths.map(({ from, to }) => [from, to])).toEqual([
      [12, 23],
      [24, 47],
      [48, 95],
    ]);
    expect(lengths.at(-1)).toMatchObject({ certificate, missing, density });
    for (const at of lengths) expect(at.certificate.mean).toBeGreaterThanOrEqual(at.missing.mean - 1e-9);
    expect(lengths[0].density).toBeGreaterThan(density); // the same budget of a shorter context
    expect(density).toBeLessThan(0.6);
    for (const key of ['mean', 'p50', 'p90', 'max'] as const) {
      expect(certificate[key]).toBeGreaterThanOrEqual(missing[key] - 1e-9);
    }
  }
  const everything = await measureCertificates({ ...policy, budget: 'all', epsilon: 0 }, local, 48);
  expect(everything.missing.max).toBeLessThan(1e-12);
  expect(everything.certificate.max).toBeLessThan(1e-12);
});

describe('visit maps', () => {
  it('split the mass of every query into visited and missed', async () => {
    const policy = parsePolicy('subquadratic:window=8,block=8');
    const [map] = await createVisitMaps(policy, local, { heads: [1], size: 24 });
    expect([map.size, map.head, map.numTokens]).toEqual([24, 1, 96]);
    for (let row = 0; row < map.size; row++) {
      let sum = 0;
      for (let column = 0; column < map.size; column++) {
        const cell = row * map.size + column;
        sum += map.visitedMass[cell] + map.missedMass[cell];
        expect(map.visited[cell]).toBeLessThanOrEqual(1);
        if (column > row) expect(map.visited[cell]).toBe(0);
      }
      expect(sum).toBeCloseTo(1, 5);
    }
    expect(Math.max(...map.summarized)).toBeGreaterThan(0);
    const { k, v, q } = local;
    const { pairs } = await attend(policy, q, k, v);
    expect(map.pairs).toBe(pairs / 2);
    expect(map.densePairs).toBe((96 * 97) / 2);
  });

  it('dense misses no mass, and cells are never smaller than a token', async () => {
    const [map] = await createVisitMaps(parsePolicy('dense'), local, { heads: [0], size: 1000 });
    expect(map.size).toBe(96);
    expect(map.mass).toBeCloseTo(1, 6);
    expect(Math.max(...map.missedMass)).toBe(0);
    expect(map.visited[95 * 96]).toBe(1);
  });
});
