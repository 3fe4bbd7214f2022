import { tensorBytes } from '@winnow/tensor';
import { rowReader } from '../numerics/row-access.js';
import { f32Only, i32Only, weightDTypes } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';

/**
 * Rows of an embedding table: `y[t] = scale * table[tokens[t]]`.
 *
 * Shapes: table `[V, E]` in any weight dtype, tokens `[T]` i32, y `[T, E]` f32. Token ids must be below V; the code
 * that fills the scalar block checks them.
 */
export const embeddingLookup: OpSpec = {
  name: 'embedding-lookup',
  inputs: { table: { dtypes: weightDTypes, shape: 'V E' }, tokens: { dtypes: i32Only, shape: 'T' } },
  outputs: { y: { dtypes: f32Only, shape: 'T E' } },
  axes: { V: 'vocabSize', E: 'dim', T: 'numTokens' },
  attributes: { scale: { kind: 'number', default: 1 } },
  fixedAxes: ['V', 'E'],
  partition: 'tokens',
  work: 'y.numElements',
  bindReference({ inputs: { table, tokens }, outputs: { y }, attributes }) {
    const ys = y.data as Float32Array;
    const hiddenDim = table.shape[1];
    const scale = attributes['scale'] as number;
    const readRow = rowReader(table);
    return () => {
      const numTokens = tokens.shape[0];
      for (let t = 0; t < numTokens; t++) {
        readRow(tokens.data[t] * hiddenDim, hiddenDim, ys, t * hiddenDim);
        if (scale !== 1) for (let i = t * hiddenDim; i < (t + 1) * hiddenDim; i++) ys[i] *= scale;
      }
    };
  },
  flops: ({ y }) => y[0] * y[1],
  bytes: ({ y }, _attributes, { table = 'f32' } = {}) => 4 * y[0] * (y[1] + 1) + tensorBytes(table, y),
};
