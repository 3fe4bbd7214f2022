import { Tensor3 } from '@winnow/tensor';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { denseTruth, largestDifference, randomTensor, roundingBound, truth } from '../../test/dense-truth.js';
import { attend, AttentionLayer } from '../attention-layer.js';
import { rowsOf } from '../core/rows.js';
import { parsePolicy } from '../policy/policy-text.js';
import type { H2oPrefillPolicy } from '../policy/policy-types.js';
import { h2oPairs, jaccard } from './h2o-memory.js';
import { H2oPrefillAttention, type H2oPrefillOptions } from './h2o-prefill.js';

const policyOf = (text: string): H2oPrefillPolicy => parsePolicy(`h2o:${text}`) as H2oPrefillPolicy;

interface Run {
  readonly out: Tensor3;
  readonly family: H2oPrefillAttention;
  /** Memory after each chunk, `[chunk][kvHead]`. */
  readonly memories: number[][][];
}

function run(
  text: string,
  q: Tensor3,
  k: Tensor3,
  v: Tensor3,
  options: Partial<H2oPrefillOptions> = {},
  batch: number = q.seqLen,
): Run {
  const memories: number[][][] = [];
  const onMemory = (chunk: number, kvHead: number, positions: Int32Array): void => {
    (memories[chunk] ??= [])[kvHead] = [...positions];
  };
  const kv = { keys: rowsOf(k), values: rowsOf(v), length: k.seqLen };
  const family = new H2oPrefillAttention({ kv, numHeads: q.numHeads, policy: policyOf(text), onMemory, ...options });
  const out = Tensor3.create(q.seqLen, q.numHeads, v.headDim);
  for (let begin = 0; begin < q.seqLen; begin += batch) {
    const end = Math.min(q.seqLen, begin + batch);
    family.attend(q.slice(begin, end), begin, out.slice(begin, end));
  }
  return { out, family, memories };
}

/** States are rounded to f32 twice (per part, fused) besides the output: m exactly shifted, l and o half an ulp each. */
const bound = (v: Tensor3): number => 6 * roundingBound(v);

const random = (n: number, size = 1): { q: Tensor3; k: Tensor3; v: Tensor3 } => ({
  q: randomTensor(1, n, 4, 8, size),
  k: randomTensor(2, n, 2, 8, size),
  v: randomTensor(3, n, 2, 8),
});

/** Row by row over the kept positions, with scores from plain attention matrices. */
function byDefinition(
  policy: H2oPrefillPolicy,
  q: Tensor3,
  k: Tensor3,
  v: Tensor3,
): { out: Tensor3; memories: number[][][]; scores: number[][] } {
  const { chunk, local, heavy, sinks } = policy;
  const n = q.seqLen;
  const out = Tensor3.create(n, 4, 8);
  const memories: number[][][] = [];
  const scores = [0, 1].map(() => Array.from({ length: n }, () => 0));
  const softmaxRow = (i: number, h: number, keys: number[]): number[] => {
    const logits = keys.map((j) => k.row(j, h >> 1).reduce((s, x, d) => s + x * q.row(i, h)[d], 0) / Math.sqrt(8));
    const exps = logits.map((s) => Math.exp(s - Math.max(...logits)));
    const sum = exps.reduce((a, b) => a + b, 0);
    return exps.map((x) => x / sum);
  };
  for (let c = 0; c * chunk < n; c++) {
    const [begin, end] = [c * chunk, Math.min(n, (c + 1) * chunk)];
    for (const kvHead of [0, 1]) {
      const memory = c === 0 ? [] : memories[c - 1][kvHead];
      for (let i = begin; i < end; i++) {
        const own = Array.from({ length: i - begin + 1 }, (_, x) => begin + x);
        for (const h of [2 * kvHead, 2 * kvHead + 1]) {
          const keys = [...memory, ...own].map((j) => ({ key: k.row(j, kvHead), value: v.row(j, kvHead) }));
          out.row(i, h).set(truth(q.row(i, h), keys, 1 / Math.sqrt(8)));
          softmaxRow(i, h, own).forEach((w, x) => (scores[kvHead][own[x]] += w));
          if (memory.length > 0) softmaxRow(i, h, memory).forEach((w, x) => (scores[kvHead][memory[x]] += w));
        }
      }
      if (end - begin < chunk) continue;
      const isForced = (j: number): boolean => j < sinks || j >= end - local;
      const all = [...memory, ...Array.from({ length: chunk }, (_, x) => begin + x)];
      const best = all.filter((j) => !isForced(j)).toSorted((a, b) => scores[kvHead][b] - scores[kvHead][a] || a - b);
      const kept = [...all.filter(isForced), ...best.slice(0, heavy)].toSorted((a, b) => a - b);
      (memories[c] ??= [])[kvHead] = [...new Set(kept)];
    }
  }
  return { out, memories, scores };
}

describe('pairs', () => {
  it('4096 tokens, S=1024, M=512: 2,099,200 + 1,572,864 = 3,672,064', () => {
    const policy = policyOf('chunk=1024,local=256,heavy=256');
    expect(h2oPairs(policy, 4096)).toEqual({ intra: 2_099_200, inter: 1_572_864, total: 3_672_064 });
    // 7.3 M and 14.7 M of the document are batches of 4096 that each begin without memory; memory that carries costs more.
    expect(2 * h2oPairs(policy, 4096).total).toBe(7_344_128);
    expect(4 * h2oPairs(policy, 4096).total).toBe(14_688_256);
    expect(h2oPairs(policy, 8192).total).toBe(7_868_416);
    expect(h2oPairs(policy, 16384).total).toBe(16_261_120);
  });

  it('counted while attending, they are the formula', () => {
    for (const n of [1, 15, 16, 17, 31, 32, 33, 100]) {
      const { q, k, v } = random(n);
      const { family } = run('chunk=16,local=3,heavy=5,sinks=2', q, k, v);
      const { intra, inter } = h2oPairs(policyOf('chunk=16,local=3,heavy=5,sinks=2'), n);
      expect([family.intraPairs, family.interPairs]).toEqual([4 * intra, 4 * inter]);
      expect(family.numUpdates).toBe(Math.ceil(n / 16) - 1);
    }
  });
});

describe('against the definition', () => {
  it.each([
    ['chunk=16,local=4,heavy=4', 100],
    ['chunk=16,local=4,heavy=4,sinks=3', 100],
    ['chunk=16,local=0,heavy=5', 64],
    ['chunk=16,local=5,heavy=0', 63],
    ['chunk=16,local=8,heavy=7', 31], // N = 2S - 1
    ['chunk=16,local=8,heavy=7', 16], // N = S
    ['chunk=16,local=8,heavy=7', 5], // N < L
    ['chunk=1,local=0,heavy=0', 9],
  ])('%s, %i tokens', (text, n) => {
    const { q, k, v } = random(n);
    const expected = byDefinition(policyOf(text), q, k, v);
    const { out, memories, family } = run(text, q, k, v);
    expect(memories).toEqual(expected.memories);
    expect(largestDifference(out, expected.out)).toBeLessThan(bound(v));
    for (const kvHead of [0, 1]) {
      for (let j = 0; j < n; j++) expect(family.memory.scores[kvHead][j]).toBeCloseTo(expected.scores[kvHead][j], 4);
    }
    if (n <= policyOf(text).chunk) expect(largestDifference(out, denseTruth(q, k, v))).toBeLessThan(bound(v));
  });

  it('the parallel and the sequential schedule and any batches give the same numbers', () => {
    const { q, k, v } = random(120);
    const text = 'chunk=16,local=4,heavy=6,sinks=1';
    const expected = run(text, q, k, v, { schedule: 'parallel' });
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 130 }),
        fc.constantFrom('parallel' as const, 'sequential' as const),
        (batch, schedule) => {
          const { out, memories, family } = run(text, q, k, v, { schedule }, batch);
          expect(out.data).toEqual(expected.out.data);
          // A chunk that arrives in parts adds its votes in parts: f32 sums in another order.
          if (batch % 16 === 0 || batch >= 120) expect(family.memory.scores).toEqual(expected.family.memory.scores);
          expect(memories).toEqual(expected.memories);
          expect(family.numUpdates).toBe(7);
        },
      ),
      { numRuns: 40 },
    );
  });

  it('memory that holds everything equals dense', () => {
    const { q, k, v } = random(100);
    const { out } = run('chunk=16,local=16,heavy=100', q, k, v, { allowsLargeMemory: true });
    expect(largestDifference(out, denseTruth(q, k, v))).toBeLessThan(bound(v));
  });

  it('logits within [-100, 100] give neither infinities nor NaN', () => {
    const { q, k, v } = random(64, 6);
    const logits = q.data.reduce((max, x) => Math.max(max, Math.abs(x)), 0) * 6 * 8;
    expect(logits).toBeGreaterThan(100);
    expect(run('chunk=16,local=4,heavy=4', q, k, v).out.data.every(Number.isFinite)).toBe(true);
  });
});

describe('memory', () => {
  it('keeps a token of chunk 0 that everybody looks at; heads choose for themselves; scores never decrease', () => {
    const { q, k, v } = random(80);
    for (let i = 0; i < 80; i++) {
      q.row(i, 0).fill(1);
      q.row(i, 1).fill(1);
      q.row(i, 2).fill(-1);
      q.row(i, 3).fill(-1);
    }
    k.row(3, 0).fill(3);
    k.row(7, 1).fill(-3);
    const { memories } = run('chunk=16,local=4,heavy=2', q, k, v);
    for (const memory of memories) {
      expect(memory[0]).toContain(3);
      expect(memory[1]).toContain(7);
      expect(memory[0]).not.toContain(7);
    }
    const kv = { keys: rowsOf(k), values: rowsOf(v), length: 80 };
    const family = new H2oPrefillAttention({ kv, numHeads: 4, policy: policyOf('chunk=16,local=4,heavy=2') });
    let before = new Float32Array(80);
    for (let begin = 0; begin < 80; begin += 16) {
      family.attend(q.slice(begin, begin + 16), begin, Tensor3.create(16, 4, 8));
      const now = family.memory.scores[0].slice(0, 80);
      for (const [j, score] of now.entries()) expect(score).toBeGreaterThanOrEqual(before[j]);
      before = now;
    }
    expect([...family.keptPositions(0)]).toEqual(memories[4][0]);
  });

  it('clamps budgets below the chunk and says so', () => {
    const { q, k, v } = random(40);
    const notices: string[] = [];
    const { family } = run('chunk=16,local=12,heavy=12,sinks=2', q, k, v, { notice: (text) => notices.push(text) });
    expect(family.memory.budgets).toEqual({ sinks: 2, local: 12, heavy: 1 });
    expect(notices).toEqual([
      expect.stringContaining('using sinks=2, local=12, heavy=1 instead of sinks=2, local=12, heavy=12'),
    ]);
  });

  it('carries over decoded tokens and later prompts; decode is dense', () => {
    const { q, k, v } = random(75);
    const layer = new AttentionLayer({
      prefill: 'h2o:chunk=16,local=4,heavy=6',
      numHeads: 4,
      numKvHeads: 2,
      headDim: 8,
      capacity: 75,
    });
    const part = (begin: number, end: number): [Tensor3, Tensor3, Tensor3] => [
      q.slice(begin, end),
      k.slice(begin, end),
      v.slice(begin, end),
    ];
    layer.prefill(...part(0, 40));
    const dense = denseTruth(q, k, v);
    for (let i = 40; i < 55; i++) {
      expect(largestDifference(layer.decode(...part(i, i + 1)), dense.slice(i, i + 1))).toBeLessThan(bound(v));
    }
    const family = layer.prefillFamily as H2oPrefillAttention;
    expect(family.length).toBe(40);
    layer.prefill(...part(55, 75));
    expect(family.length).toBe(75);
    // Chunk 2 (32..47) was finished by decoding: its last 4 tokens are kept although no query of a prompt saw them.
    for (const kvHead of [0, 1])
      expect([...family.keptPositions(kvHead)].filter((j) => j >= 48)).toEqual(
        expect.arrayContaining([60, 61, 62, 63]),
      );
  });

  it('refuses to give mass and to go back behind the open chunk', () => {
    const { q, k, v } = random(40);
    expect(() => attend('h2o:chunk=16', q, k, v, { mass: new Float32Array(80) })).toThrow('no mass');
    const { family } = run('chunk=16,local=4,heavy=4', q, k, v);
    expect(() => family.truncated(31)).toThrow('at least 32');
    family.truncated(35);
    expect(family.length).toBe(35);
  });

  it('compares heavy sets by Jaccard similarity', () => {
    expect(jaccard([1, 2, 3, 9], [2, 3, 4])).toBe(2 / 5);
    expect(jaccard([], [])).toBe(1);
    expect(jaccard([1], [])).toBe(0);
  });
});
