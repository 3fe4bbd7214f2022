/** Semantic textual similarity: how well cosines of embeddings rank sentence pairs compared with human scores. */
import type { EmbeddingModel, EmbedOptions } from '@winnow/engine';
import { ArgumentError, FormatError } from '@winnow/tensor';
import { cosineOf, pearson, spearman } from '../logits/correlation.js';

/** Two sentences and their human similarity score. */
export interface SentencePair {
  readonly first: string;
  readonly second: string;
  readonly score: number;
}

export interface StsReport {
  readonly numPairs: number;
  /** Number of embedded sentences, without duplicates. */
  readonly numTexts: number;
  readonly numTokens: number;
  /** Number of tokens truncated from sentences beyond the context. */
  readonly numDroppedTokens: number;
  /** Rank correlation of cosines and scores, the usual metric, between -1 and 1. */
  readonly spearman: number;
  readonly pearson: number;
}

/** Columns of the STS benchmark files: genre, file, year, number, score and the two sentences; more may follow. */
const scoreColumn = 4;

/**
 * Parses sentence pairs: tab-separated lines as in the STS benchmark (without quoting), lines of score, sentence,
 * sentence, or JSON lines with `sentence1`, `sentence2` and `score`.
 * @throws {FormatError} that names the line
 */
export function parseSentencePairs(source: string, text: string): SentencePair[] {
  const lines = text.split(/\r?\n/);
  if (lines.at(-1) === '') lines.pop();
  const pairs = lines.map((line, index) => parsePair(source, `line ${index + 1}`, line));
  if (pairs.length > 0) return pairs;
  throw new FormatError({ source, field: 'pairs', message: 'expected at least one pair, got an empty file' });
}

function parsePair(source: string, field: string, line: string): SentencePair {
  const isJson = line.startsWith('{');
  const [score, first, second] = isJson ? jsonParts(source, field, line) : tabParts(line);
  const isScore = typeof score === 'number' || (typeof score === 'string' && score.trim() !== '');
  if (isScore && Number.isFinite(Number(score)) && typeof first === 'string' && typeof second === 'string') {
    return { score: Number(score), first, second };
  }
  const expected = isJson ? 'sentence1, sentence2 and a score' : 'columns with a score and two sentences';
  const message = `expected ${expected}, got ${JSON.stringify(line.slice(0, 60))}`;
  throw new FormatError({ source, field, message });
}

function tabParts(line: string): unknown[] {
  const columns = line.split('\t');
  return columns.length === 3 ? columns : columns.slice(scoreColumn, scoreColumn + 3);
}

function jsonParts(source: string, field: string, line: string): unknown[] {
  try {
    const { score, sentence1, sentence2 } = JSON.parse(line) as Record<string, unknown>;
    return [score, sentence1, sentence2];
  } catch (cause) {
    throw new FormatError({ source, field, message: `expected JSON (${(cause as Error).message})` }, { cause });
  }
}

/**
 * Embeds every sentence and compares cosines with scores.
 * @throws {ArgumentError} for fewer than two pairs, which have no correlation
 * @throws what `embedTexts` throws
 */
export async function evaluateSts(
  model: EmbeddingModel,
  pairs: readonly SentencePair[],
  options: Omit<EmbedOptions, 'normalize'> = {},
): Promise<StsReport> {
  if (pairs.length < 2) {
    throw new ArgumentError({ argument: 'pairs', expected: 'at least two', actual: String(pairs.length) });
  }
  const rows = new Map<string, number>();
  for (const { first, second } of pairs) {
    for (const text of [first, second]) if (!rows.has(text)) rows.set(text, rows.size);
  }
  const embedded = await model.embedTexts([...rows.keys()], { ...options, normalize: true });
  const vectorOf = (text: string): Float32Array => embedded[rows.get(text) as number]?.vector as Float32Array;
  const cosines = pairs.map(({ first, second }) => cosineOf(vectorOf(first), vectorOf(second)));
  const scores = pairs.map(({ score }) => score);
  const sumOf = (field: 'numTokens' | 'numDroppedTokens'): number =>
    embedded.reduce((sum, text) => sum + text[field], 0);
  return {
    numPairs: pairs.length,
    numTexts: rows.size,
    numTokens: sumOf('numTokens'),
    numDroppedTokens: sumOf('numDroppedTokens'),
    spearman: spearman(cosines, scores),
    pearson: pearson(cosines, scores),
  };
}

/** Formats the report. */
export function formatSts({ numPairs, numTexts, numTokens, numDroppedTokens, ...report }: StsReport): string {
  const dropped = numDroppedTokens === 0 ? '' : `, ${numDroppedTokens} truncated`;
  return [
    `spearman ${report.spearman.toFixed(4)}  pearson ${report.pearson.toFixed(4)}`,
    `${numPairs} pairs, ${numTexts} sentences, ${numTokens} tokens${dropped}`,
    '',
  ].join('\n');
}
