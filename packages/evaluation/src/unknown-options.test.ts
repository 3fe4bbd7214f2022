/** Unknown options are errors that name the nearest known one. */
import type { Model } from '@winnow/engine';
import { parsePolicy, type H2oPrefillPolicy } from '@winnow/sparse-attention';
import { UnknownOptionError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import {
  createBaseRows,
  createCachedMaps,
  createRecallCase,
  createVisitMaps,
  evaluateModel,
  evaluateSparse,
  evaluateSparseEmbeddings,
  type AttentionCapture,
  type EvaluateOptions,
  type EvaluateSparseEmbeddingsOptions,
  type EvaluateSparseOptions,
  type RecallCaseOptions,
} from './index.js';

/** A misspelled option, as passed by untyped code. */
const unknown: object = { singal: undefined };

const capture = {} as AttentionCapture;
const h2o = parsePolicy('h2o') as H2oPrefillPolicy;

test.each<[name: string, call: () => unknown]>([
  ['createBaseRows', () => createBaseRows({} as Model, new Int32Array(1), unknown)],
  ['createCachedMaps', () => createCachedMaps(h2o, capture, unknown)],
  ['createRecallCase', () => createRecallCase(unknown as RecallCaseOptions)],
  ['createVisitMaps', () => createVisitMaps({ kind: 'dense' }, capture, { ...unknown, heads: [] })],
  ['evaluateModel', () => evaluateModel(unknown as EvaluateOptions)],
  ['evaluateSparse', () => evaluateSparse(unknown as EvaluateSparseOptions)],
  ['evaluateSparseEmbeddings', () => evaluateSparseEmbeddings(unknown as EvaluateSparseEmbeddingsOptions)],
])('%s', async (_name, call) => {
  await expect((async () => call())()).rejects.toThrow(UnknownOptionError);
});
