/** Callbacks for rows and attention inputs. */
import { ArgumentError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { loadModel, type AttentionTrace } from '../../../src/index.js';
import { archPath } from '../../support/golden-files.js';

const path = archPath('llama', 'model.gguf') as string;
const tokens = [1, 2, 3, 4, 5, 6, 7];
const positions = [1, 3, 6];

test('rows are passed one by one and equal the result', async () => {
  await using model = await loadModel(path);
  const expected = await model.logprobs(tokens, { positions });
  for (const batchSize of [1, 3, 64]) {
    const rows: [number, Float32Array][] = [];
    const onRow = async (position: number, logprobs: Float32Array): Promise<void> => {
      await Promise.resolve();
      rows.push([position, logprobs]);
    };
    expect(await model.logprobs(tokens, { positions, batchSize, onRow })).toEqual([]);
    expect(rows.map(([position]) => position)).toEqual(positions);
    if (batchSize === 64) expect(rows.map(([, row]) => row)).toEqual(expected);
  }
});

test('traces report the attention inputs of each layer and do not change results', async () => {
  await using plain = await loadModel(path);
  await using model = await loadModel(path, { trace: { attention: true } });
  expect(await model.logprobs(tokens, { positions })).toEqual(await plain.logprobs(tokens, { positions }));
  const { numLayers, numHeads, numKvHeads, headDim } = model.config;
  const traces: AttentionTrace[] = [];
  await model.logprobs(tokens, { batchSize: 4, onAttention: (trace) => void traces.push(trace) });
  expect(traces.map(({ layer, begin, numTokens }) => [layer, begin, numTokens])).toEqual(
    [[0, 4] as const, [4, 3] as const].flatMap(([begin, count]) =>
      Array.from({ length: numLayers }, (_, layer) => [layer, begin, count]),
    ),
  );
  const [first] = traces as [AttentionTrace];
  expect(first.q.length).toBe(4 * numHeads * headDim);
  expect(first.k.length).toBe(4 * numKvHeads * headDim);
  expect(first.scale).toBeCloseTo(1 / Math.sqrt(headDim), 6);
  const row = numHeads * headDim;
  expect(first.q.subarray(0, row)).toEqual(first.unrotatedQ.subarray(0, row)); // position 0
  expect(first.q.subarray(row)).not.toEqual(first.unrotatedQ.subarray(row));
  const norm = (values: Float32Array): number => Math.hypot(...values);
  expect(norm(first.q)).toBeCloseTo(norm(first.unrotatedQ), 4); // rotation preserves the norm
  const single: AttentionTrace[] = [];
  await model.logprobs(tokens, { batchSize: 1, onAttention: (trace) => void single.push(trace) });
  const third = single.find(({ layer, begin }) => layer === 0 && begin === 2) as AttentionTrace;
  for (const [i, x] of third.q.entries()) expect(x).toBeCloseTo(first.q[2 * row + i] as number, 5);
});

test('a model loaded without trace.attention cannot trace', async () => {
  await using model = await loadModel(path);
  await expect(model.logprobs(tokens, { onAttention: () => {} })).rejects.toThrow(ArgumentError);
});
