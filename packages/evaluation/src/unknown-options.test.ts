/** Unknown options are errors that name the nearest known one. */
import { UnknownOptionError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import {
  evaluateModel,
  evaluateSparse,
  evaluateSparseEmbeddings,
  type EvaluateOptions,
  type EvaluateSparseEmbeddingsOptions,
  type EvaluateSparseOptions,
} from './index.js';

/** A misspelled option, as passed by untyped code. */
const unknown: object = { singal: undefined };

test.each<[name: string, call: () => unknown]>([
  ['evaluateModel', () => evaluateModel(unknown as EvaluateOptions)],
  ['evaluateSparse', () => evaluateSparse(unknown as EvaluateSparseOptions)],
  ['evaluateSparseEmbeddings', () => evaluateSparseEmbeddings(unknown as EvaluateSparseEmbeddingsOptions)],
])('%s', async (_name, call) => {
  await expect((async () => call())()).rejects.toThrow(UnknownOptionError);
});
