/** Keys and pairs against the goldens of the specification and against sets built directly from its definition. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parsePolicy } from '../policy/text.js';
import type { SubquadraticPolicy } from '../policy/kinds.js';
import { auditPairs, countPairs, countRow, subquadraticKeys } from './subquadratic.js';

function policyOf(text: string): SubquadraticPolicy {
  return parsePolicy(`subquadratic:landmarks=compat,bias=none${text}`) as SubquadraticPolicy;
}

const goldens: readonly [number, number][] = [
  [512, 59_778],
  [1024, 129_858],
  [2048, 272_130],
  [4096, 560_834],
  [8192, 1_146_498],
  [16384, 2_334_274],
  [32768, 4_742_658],
  [65536, 9_625_026],
];

describe('pairs per head, W=128, B=64, g=[0]', () => {
  it.each(goldens)('%i tokens: %i', (seqLen, pairs) => {
    expect(countPairs(policyOf(''), seqLen)).toBe(pairs);
    if (seqLen > 4096) return; // longer ones are counted by the ops, see attend.test.ts
    const audit = auditPairs(policyOf(''), seqLen);
    expect(audit.pairs).toBe(pairs);
    expect(audit.tokenPairs + audit.landmarkPairs).toBe(pairs);
    expect(audit.densePairs).toBe((seqLen * (seqLen + 1)) / 2);
  });

  it('W=100: 49,059; without log-stride: 59,009', () => {
    for (const [text, pairs] of [
      [',window=100', 49_059],
      [',logstride=false', 59_009],
    ] as const) {
      expect(countPairs(policyOf(text), 512)).toBe(pairs);
      expect(auditPairs(policyOf(text), 512).pairs).toBe(pairs);
    }
  });

  it('differs from the counts of wrong readings: 48,648, 59,774, 60,030 and 60,230', () => {
    const exclusiveWindow = auditPairs(policyOf(',window=99'), 512).pairs;
    expect(exclusiveWindow).toBe(48_648);
    const wrong = { ownBlockExcluded: 0, partialBlockAllowed: 0, allPastBlocks: 0 };
    const { tokenPairs } = auditPairs(policyOf(''), 512);
    const strides = (pivot: number): number => (pivot < 0 ? 0 : pivot === 0 ? 1 : 2 + Math.floor(Math.log2(pivot)));
    for (let i = 0; i < 512; i++) {
      wrong.ownBlockExcluded += strides(Math.floor((i + 1) / 64) - 1 - (i % 64 === 63 ? 1 : 0));
      wrong.partialBlockAllowed += strides(Math.floor(i / 64));
      wrong.allPastBlocks += Math.floor((i + 1) / 64);
    }
    // Each of these misreadings of the specification gives another count.
    expect(auditPairs(policyOf(''), 512).pairs).toBe(59_778);
    for (const landmarkPairs of Object.values(wrong)) expect(tokenPairs + landmarkPairs).not.toBe(59_778);
    expect(tokenPairs + wrong.ownBlockExcluded).toBe(59_774);
    expect(tokenPairs + wrong.partialBlockAllowed).toBe(60_030);
    expect(tokenPairs + wrong.allPastBlocks).toBe(60_230);
  });
});

describe('rows at N=64, W=4, B=8', () => {
  const range = (begin: number, end: number): number[] => Array.from({ length: end - begin + 1 }, (_, i) => begin + i);
  const row = (i: number, causal: boolean): string => {
    const { tokens, blocks } = subquadraticKeys(policyOf(',window=4,block=8'), i, 64, { causal });
    return `${tokens.join()} | ${blocks.join()}`;
  };

  it.each([
    [0, '0 | '],
    [6, `0,${range(2, 6).join()} | `],
    [7, `0,${range(3, 7).join()} | 0`],
    [40, `0,8,24,32,${range(36, 40).join()} | 0,2,3,4`],
    [63, `0,31,47,55,${range(59, 63).join()} | 3,5,6,7`],
  ])('causal row %i: %s', (i, expected) => {
    expect(row(i, true)).toBe(expected);
  });

  it('bidirectional row 40', () => {
    expect(row(40, false)).toBe(`0,8,24,32,${range(36, 44).join()},48,56 | 1,3,4,6,7`);
  });

  it('outside-window skips blocks whose tokens are all keys', () => {
    // W=15: block 4 (32..39) lies within 25..40, block 3 (24..31) does not: 24 is the key 40-16, so it is covered too.
    const policy: SubquadraticPolicy = { ...policyOf(',window=15,block=8'), landmarks: 'outside-window' };
    expect([...subquadraticKeys(policy, 40, 64).blocks]).toEqual([0, 2]);
  });
});

/** The sets of the specification, token by token. */
function definition(
  policy: SubquadraticPolicy,
  i: number,
  n: number,
  causal: boolean,
): { tokens: Set<number>; blocks: Set<number> } {
  const { window: w, globals, logStride, blockSize, landmarks } = policy;
  const tokens = new Set<number>();
  for (let j = Math.max(0, i - w); j <= (causal ? i : Math.min(n - 1, i + w)); j++) tokens.add(j);
  for (const g of globals) if (g < n && (!causal || g <= i)) tokens.add(g);
  for (let s = 1; logStride && s < n; s *= 2) {
    if (i >= s) tokens.add(i - s);
    if (!causal && i + s < n) tokens.add(i + s);
  }
  const blocks = new Set<number>();
  const numBlocks = Math.ceil(n / blockSize);
  const available = causal ? Math.floor((i + 1) / blockSize) : numBlocks;
  const pivot = causal ? available - 1 : Math.floor(i / blockSize);
  if (available > 0) {
    if (causal) blocks.add(pivot);
    for (const sign of causal ? [-1] : [-1, 1]) {
      blocks.add(pivot + sign);
      for (let s = 1; logStride && s < 2 * numBlocks; s *= 2) blocks.add(pivot + sign * s);
    }
  }
  for (const b of [...blocks]) {
    const isCovered = Array.from({ length: blockSize }, (_, j) => b * blockSize + j).every(
      (j) => j >= n || tokens.has(j),
    );
    if (b < 0 || b >= available || (landmarks === 'outside-window' && isCovered) || landmarks === 'off')
      blocks.delete(b);
    if (!causal && b === pivot) blocks.delete(b);
  }
  return { tokens, blocks };
}

describe('any policy', () => {
  const arbitraryPolicy = fc.record({
    kind: fc.constant('subquadratic' as const),
    window: fc.nat(40),
    blockSize: fc.integer({ min: 1, max: 20 }),
    globals: fc.uniqueArray(fc.nat(120), { maxLength: 6 }),
    logStride: fc.boolean(),
    landmarks: fc.constantFrom('compat' as const, 'outside-window' as const, 'off' as const),
    landmarkBias: fc.constant('none' as const),
    delta: fc.constant(0),
  });

  it('visits the keys of the definition', () => {
    const [length, index] = [fc.integer({ min: 1, max: 150 }), fc.nat()];
    fc.assert(
      fc.property(arbitraryPolicy, length, fc.boolean(), index, (policy, n, causal, at) => {
        const i = at % n;
        const { tokens, blocks } = subquadraticKeys(policy, i, n, { causal });
        const expected = definition(policy, i, n, causal);
        expect([...tokens]).toEqual([...expected.tokens].toSorted((a, b) => a - b));
        expect([...blocks]).toEqual([...expected.blocks].toSorted((a, b) => a - b));
        if (causal && policy.landmarks !== 'outside-window') {
          expect(countRow(policy, i)).toBe(expected.tokens.size + expected.blocks.size);
        }
      }),
      { numRuns: 1000 },
    );
  });

  it('keeps the window and the globals regardless of the salience gate', () => {
    const { tokens } = subquadraticKeys(policyOf(',window=4,block=8'), 40, 64, { keepStride: (j) => j !== 24 });
    expect([...tokens]).toEqual([0, 8, 32, 36, 37, 38, 39, 40]);
  });
});
