/**
 * The order in which block summaries add tokens, and how they are rebuilt; shared by the ops that maintain summaries.
 */
import { rowReader } from '../numerics/row-access.js';
import type { TensorView } from '../spec/op-spec.js';

/** The update rule of a summary. `summary` counts blocks, their parts and heads: `(C * numParts + G) * K + head`. */
export interface SummaryKeeper {
  reset(summary: number): void;
  /** Adds the token with which the summary covers `count` tokens. */
  add(summary: number, count: number, key: Float32Array, value: Float32Array): void;
}

/** The function of a record: adds every token of the step, as stored, to the summary of its slot. */
export function eachSummarized(
  slots: TensorView,
  keys: TensorView,
  values: TensorView,
  counts: TensorView,
  keeper: SummaryKeeper,
): () => void {
  const [, numKvHeads, blockSize, headDim] = keys.shape;
  const valueDim = values.shape[3];
  const numParts = counts.shape[1];
  const partSize = blockSize / numParts;
  const readKey = rowReader(keys);
  const readValue = rowReader(values);
  const key = new Float32Array(headDim);
  const value = new Float32Array(valueDim);
  return () => {
    const numTokens = slots.shape[0];
    for (let t = 0; t < numTokens; t++) {
      const slot = slots.data[t];
      if (slot < 0) continue;
      const block = Math.floor(slot / blockSize);
      const part = Math.floor((slot % blockSize) / partSize);
      const offset = (slot % blockSize) % partSize;
      for (let head = 0; head < numKvHeads; head++) {
        const summary = (block * numParts + part) * numKvHeads + head;
        const firstRow = (block * numKvHeads + head) * blockSize + part * partSize;
        const isCurrent = offset !== 0 && counts.data[summary] === offset;
        if (!isCurrent) keeper.reset(summary);
        for (let o = isCurrent ? offset : 0; o <= offset; o++) {
          readKey((firstRow + o) * headDim, headDim, key, 0);
          readValue((firstRow + o) * valueDim, valueDim, value, 0);
          keeper.add(summary, o + 1, key, value);
        }
        counts.data[summary] = offset + 1;
      }
    }
  };
}

export function summaryDims(keys: TensorView, values: TensorView): { headDim: number; valueDim: number } {
  return { headDim: keys.shape[3], valueDim: values.shape[3] };
}
