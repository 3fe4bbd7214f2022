/** Unknown options are errors that name the nearest known one. */
import { Tensor3, UnknownOptionError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { attend, attentionFromOptions, AttentionLayer, compareToDense, syntheticAttention } from './index.js';

/** A misspelled option, as passed by untyped code. */
const unknown: object = { singal: undefined };
const x = Tensor3.create(2, 1, 4);
const tensors = { q: x, k: x, v: x };

test.each<[name: string, call: () => unknown]>([
  ['attend', () => attend('dense', x, x, x, unknown)],
  ['attentionFromOptions', () => attentionFromOptions(unknown)],
  ['AttentionLayer', () => new AttentionLayer({ ...unknown, numHeads: 1, numKvHeads: 1, headDim: 4, capacity: 4 })],
  ['compareToDense', () => compareToDense('dense', tensors, unknown)],
  ['syntheticAttention', () => syntheticAttention({ ...unknown, kind: 'local', seqLen: 4 })],
])('%s', async (_name, call) => {
  await expect((async () => call())()).rejects.toThrow(UnknownOptionError);
});
