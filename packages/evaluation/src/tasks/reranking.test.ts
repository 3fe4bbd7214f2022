import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { loadReranker, type Reranker } from '@winnow/engine';
import { ArgumentError } from '@winnow/tensor';
import { sharedDataPath } from '@winnow/test-utils';
import { describe, expect, it, test } from 'vitest';
import { evaluateReranking, formatReranking } from './reranking.js';
import { parseSentencePairs, type SentencePair } from './sts.js';

/** Scores by a function of the texts. */
function scoring(scoreOf: (query: string, document: string) => number): Pick<Reranker, 'rerank'> {
  return {
    rerank: async (query, documents) =>
      documents
        .map((document, index) => ({ index, score: scoreOf(query, document), numTokens: 2, numDroppedTokens: 0 }))
        .toSorted((a, b) => b.score - a.score),
  };
}

const wordsOf = (text: string): Set<string> => new Set(text.toLowerCase().match(/[a-z0-9]+/g));

/** Share of common words. */
function overlap(query: string, document: string): number {
  const [a, b] = [wordsOf(query), wordsOf(document)];
  const numCommon = [...a].filter((word) => b.has(word)).length;
  return numCommon / (a.size + b.size - numCommon);
}

const pairs: readonly SentencePair[] = [
  { first: 'q0', second: 'd0', score: 5 },
  { first: 'q1', second: 'd1', score: 4 },
  { first: 'q2', second: 'd2', score: 1 },
  { first: 'q3', second: 'd3', score: 0 },
];

describe('evaluateReranking', () => {
  it('compares scores, and finds partners among candidates', async () => {
    const good = scoring((query, document) => (query[1] === document[1] ? 5 - Number(query[1]) : -1));
    const report = await evaluateReranking(good, pairs, { numCandidates: 3 });
    // two queries of three documents, two single ones
    expect(report).toMatchObject({ numPairs: 4, numQueries: 2, numCandidates: 3, numTokens: 16, mrr: 1 });
    expect(report.spearman).toBeCloseTo(1, 12);
    expect(formatReranking(report)).toContain('mrr@3 1.0000\n4 pairs, 2 queries, 16 tokens\n');
  });

  it('a tie counts as a place behind, and an inverted model comes last', async () => {
    expect(
      (
        await evaluateReranking(
          scoring(() => 1),
          pairs,
          { numCandidates: 3 },
        )
      ).mrr,
    ).toBeCloseTo(1 / 3, 12);
    const second = scoring((query, document) => (document === 'd2' ? 2 : query[1] === document[1] ? 1 : 0));
    // q0 and q1 both have d2 before their own
    expect((await evaluateReranking(second, pairs, { numCandidates: 3 })).mrr).toBeCloseTo(1 / 2, 12);
  });

  it('leaves out candidates that are the query or its partner', async () => {
    const seen: string[] = [];
    const model = scoring((_query, document) => seen.push(document));
    const repeated = [...pairs, { first: 'd0', second: 'x', score: 0 }, { first: 'y', second: 'q0', score: 0 }];
    const { numQueries } = await evaluateReranking(model, repeated, { numCandidates: 4, minRelevance: 5 });
    // then the only document of the next pair
    expect(seen.slice(0, 5)).toEqual(['d0', 'd1', 'd2', 'd3', 'd1']);
    // a search among fewer would be easier
    const report = await evaluateReranking(model, repeated, { numCandidates: 5, minRelevance: 5 });
    expect([numQueries, report.numQueries, report.mrr]).toEqual([1, 0, 0]);
  });

  it('rejects too few pairs', async () => {
    await expect(evaluateReranking(scoring(overlap), pairs.slice(1, 2))).rejects.toThrow(ArgumentError);
    await expect(evaluateReranking(scoring(overlap), pairs, { numCandidates: 5 })).rejects.toThrow('pairs: expected');
  });
});

const path = sharedDataPath('data', 'corpora', 'stsbenchmark', 'sts-dev.csv');
describe.skipIf(path === undefined)(
  `STS benchmark${path ? '' : ' (needs ../shared/data/corpora/stsbenchmark)'}`,
  () => {
    const all = path === undefined ? [] : parseSentencePairs(path, readFileSync(path, 'utf8'));
    // every 20th pair, so that candidates have other topics
    const some = all.filter((_, index) => index % 20 === 0);

    test('common words rank far better than chance', async () => {
      const { spearman, mrr, numQueries } = await evaluateReranking(scoring(overlap), some);
      expect(numQueries).toBeGreaterThan(10);
      // without a relation the rank correlation has the standard deviation 1 / sqrt(n - 1)
      expect(spearman).toBeGreaterThan(4 / Math.sqrt(some.length - 1));
      // chance: (1 + 1/2 + ... + 1/10) / 10 = 0.29, with a standard deviation of at most 0.28 per query
      expect(mrr).toBeGreaterThan(0.29 + (4 * 0.28) / Math.sqrt(numQueries));
    });

    test('a loaded reranker gets the score of each pair that rerank gives', async () => {
      const golden = new URL('../../../engine/test/fixtures/rerank/bert/model.gguf', import.meta.url);
      await using model = await loadReranker(fileURLToPath(golden), { threads: 1 });
      const few = some.slice(0, 12);
      const report = await evaluateReranking(model, few, { overflow: 'truncate' });
      expect(report.numTokens).toBeGreaterThan(0);
      // the same order of scores by another way: all pairs as one list of single documents
      const scores: number[] = [];
      for (const { first, second } of few) {
        const [only] = await model.rerank(first, [second], { overflow: 'truncate', normalize: false });
        scores.push(only?.score as number);
      }
      const direct = scoring((query) => scores[few.findIndex(({ first }) => first === query)] as number);
      const { pearson } = await evaluateReranking(direct, few, { minRelevance: 6 });
      expect(report.pearson).toBeCloseTo(pearson, 4);
    });
  },
);
