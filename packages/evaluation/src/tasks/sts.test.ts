import type { EmbeddingModel, TextEmbedding } from '@winnow/engine';
import { ArgumentError, FormatError } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { pearson, spearman } from '../logits/correlation.js';
import { evaluateSts, formatSts, parseSentencePairs } from './sts.js';

describe('correlations', () => {
  it('by values', () => {
    expect(pearson([1, 2, 3], [2, 4, 6])).toBeCloseTo(1, 12);
    expect(pearson([1, 2, 3], [3, 2, 1])).toBeCloseTo(-1, 12);
    expect(pearson([1, 2, 3, 4], [1, 3, 2, 5])).toBeCloseTo(5.5 / Math.sqrt(5 * 8.75), 12);
    expect(pearson([1, 1, 1], [1, 2, 3])).toBe(0);
  });

  it('by ranks: invariant under increasing functions', () => {
    const values = [0.3, -2, 5, 1.5, 9];
    expect(spearman(values, values.map(Math.exp))).toBeCloseTo(1, 12);
    // without ties: 1 - 6 sum d^2 / (n (n^2 - 1)) with d = 1, 1, 0, 0, 0
    expect(spearman([1, 2, 3, 4, 5], [2, 1, 3, 4, 5])).toBeCloseTo(1 - 12 / 120, 12);
  });

  it('equal values share a rank', () => {
    // ranks 1.5 1.5 3 and 1 2 3
    expect(spearman([7, 7, 8], [1, 2, 3])).toBeCloseTo(pearson([1.5, 1.5, 3], [1, 2, 3]), 12);
  });
});

describe('pairs', () => {
  it('of the benchmark, with literal quotes and extra columns', () => {
    const line = 'main-news\tMSRpar\t2012\t7\t3.200\tHe said "no.\tShe said "yes".\tlicense\n';
    expect(parseSentencePairs('f', line)).toEqual([{ score: 3.2, first: 'He said "no.', second: 'She said "yes".' }]);
  });

  it('of three columns and of JSON lines', () => {
    const pair = { score: 1.5, first: 'a', second: 'b c' };
    expect(parseSentencePairs('f', '1.5\ta\tb c\r\n1.5\ta\tb c')).toEqual([pair, pair]);
    expect(parseSentencePairs('f', '{"sentence1":"a","sentence2":"b c","score":1.5}\n')).toEqual([pair]);
  });

  it.each(['', 'a b c', '\ta\tb', 'x\ta\tb', 'a\tb\tc\td\t1\te', '{"sentence1":"a"}', '{', '1\ta\tb\n\n1\ta\tb'])(
    'rejects %j',
    (text) => expect(() => parseSentencePairs('f', text)).toThrow(FormatError),
  );
});

describe('evaluation', () => {
  /** Unit vectors at the angle that the text gives. */
  const embedded: string[] = [];
  const model = {
    async embedTexts(texts: readonly string[]): Promise<TextEmbedding[]> {
      embedded.push(...texts);
      return texts.map((text) => ({
        vector: Float32Array.of(Math.cos(Number(text)), Math.sin(Number(text))),
        numTokens: 3,
        numChunks: 1,
        numDroppedTokens: text === '2' ? 1 : 0,
      }));
    },
  } as unknown as EmbeddingModel;

  it('compares cosines with scores and embeds each sentence once', async () => {
    const pairs = [
      { first: '0', second: '0', score: 5 },
      { first: '0', second: '1', score: 4 },
      { first: '0', second: '2', score: 1 },
      { first: '1', second: '1.5', score: 4.5 },
    ];
    const report = await evaluateSts(model, pairs);
    expect(embedded).toEqual(['0', '1', '2', '1.5']);
    expect(report).toMatchObject({ numPairs: 4, numTexts: 4, numTokens: 12, numDroppedTokens: 1 });
    expect(report.spearman).toBeCloseTo(1, 12);
    expect(report.pearson).toBeGreaterThan(0.9);
    expect(formatSts(report)).toContain('spearman 1.0000');
    expect(formatSts(report)).toContain('1 truncated');
  });

  it('rejects a single pair', async () => {
    await expect(evaluateSts(model, [{ first: '0', second: '1', score: 2 }])).rejects.toThrow(ArgumentError);
  });
});
