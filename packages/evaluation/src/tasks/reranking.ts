/** Ranking quality: how well a reranker scores sentence pairs, and finds the partner of a sentence among others. */
import type { Reranker, RerankOptions } from '@winnow/engine';
import { ArgumentError } from '@winnow/tensor';
import { pearson, spearman } from '../logits/correlation.js';
import type { SentencePair } from './sts.js';

export interface RerankingReport {
  readonly numPairs: number;
  /** Number of pairs whose first sentence was a query with candidates. */
  readonly numQueries: number;
  /** Maximum number of documents per query; fewer where too few other pairs are left. */
  readonly numCandidates: number;
  readonly numTokens: number;
  readonly numDroppedTokens: number;
  /** Rank correlation of the model's and the human scores of the pairs, between -1 and 1. */
  readonly spearman: number;
  readonly pearson: number;
  /**
   * Mean reciprocal rank `mean(1 / rank)` of the partner among the candidates, at most 1. A model that knows nothing has
   * `(1 + 1/2 + ... + 1/n) / n` for n candidates.
   */
  readonly mrr: number;
}

export interface RerankingEvaluationOptions extends Pick<RerankOptions, 'overflow' | 'instruction' | 'signal'> {
  /** Human score from which on the second sentence answers the first. Default 4, of 5 in the STS benchmark. */
  readonly minRelevance?: number;
  /** Number of documents per query, the partner included. Default 10. */
  readonly numCandidates?: number;
  readonly onProgress?: (progress: { readonly rankedPairs: number; readonly totalPairs: number }) => void;
}

/**
 * Sentence pairs as relevance: the first sentence is the query, the second a document. Pairs from `minRelevance` on are also
 * a search: the partner has to come before the second sentences of the pairs that follow in the list. Pairs
 * that share a sentence with the query's are no candidates, and a pair that is left with fewer than `numCandidates` is no search.
 * Cost: a forward pass per pair, and `numCandidates` per query.
 * @throws {ArgumentError} for fewer than two pairs, or fewer pairs than candidates
 * @throws what `rerank` throws
 */
export async function evaluateReranking(
  model: Pick<Reranker, 'rerank'>,
  pairs: readonly SentencePair[],
  options: RerankingEvaluationOptions = {},
): Promise<RerankingReport> {
  const { minRelevance = 4, numCandidates = 10, onProgress, ...rankOptions } = options;
  checkCount('pairs', pairs.length, 2);
  checkCount('numCandidates', numCandidates, 2);
  checkCount('pairs', pairs.length, numCandidates);
  const scores: number[] = [];
  const reciprocals: number[] = [];
  let numTokens = 0;
  let numDroppedTokens = 0;
  for (const [index, { first, second, score }] of pairs.entries()) {
    const found = score >= minRelevance ? candidatesOf(pairs, index, numCandidates - 1) : [];
    const others = found.length === numCandidates - 1 ? found : []; // fewer would make the search easier
    const ranked = await model.rerank(first, [second, ...others], { ...rankOptions, normalize: false });
    const own = ranked.find((document) => document.index === 0)?.score as number;
    scores.push(own);
    // a tie counts as a place behind
    if (others.length > 0) reciprocals.push(1 / ranked.filter((document) => document.score >= own).length);
    for (const document of ranked) {
      numTokens += document.numTokens;
      numDroppedTokens += document.numDroppedTokens;
    }
    onProgress?.({ rankedPairs: index + 1, totalPairs: pairs.length });
  }
  const human = pairs.map(({ score }) => score);
  return {
    numPairs: pairs.length,
    numQueries: reciprocals.length,
    numCandidates,
    numTokens,
    numDroppedTokens,
    spearman: spearman(scores, human),
    pearson: pearson(scores, human),
    mrr: reciprocals.reduce((sum, value) => sum + value, 0) / Math.max(1, reciprocals.length),
  };
}

/** The second sentences of the pairs after this one, around the end of the list. */
function candidatesOf(pairs: readonly SentencePair[], index: number, count: number): string[] {
  const { first, second } = pairs[index] as SentencePair;
  const found = new Set<string>();
  for (let step = 1; step < pairs.length && found.size < count; step++) {
    const other = pairs[(index + step) % pairs.length] as SentencePair;
    const isAbout = [other.first, other.second].some((text) => text === first || text === second);
    if (!isAbout) found.add(other.second);
  }
  return [...found];
}

function checkCount(argument: string, actual: number, least: number): void {
  if (Number.isSafeInteger(actual) && actual >= least) return;
  throw new ArgumentError({ argument, expected: `at least ${least}`, actual: String(actual) });
}

/** Formats the report. */
export function formatReranking(report: RerankingReport): string {
  const { numPairs, numQueries, numCandidates, numTokens, numDroppedTokens } = report;
  const dropped = numDroppedTokens === 0 ? '' : `, ${numDroppedTokens} truncated`;
  return [
    `spearman ${report.spearman.toFixed(4)}  pearson ${report.pearson.toFixed(4)}  mrr@${numCandidates} ${report.mrr.toFixed(4)}`,
    `${numPairs} pairs, ${numQueries} queries, ${numTokens} tokens${dropped}`,
    '',
  ].join('\n');
}
