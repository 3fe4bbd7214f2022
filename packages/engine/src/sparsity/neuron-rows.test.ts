import { expect, test } from 'vitest';
import { neuronRows } from './neuron-rows.js';

test('rows are interleaved only with a gate, one dtype and no biases', () => {
  const same = { gate: 'q8_0', up: 'q8_0', down: 'q8_0' } as const;
  expect(neuronRows(same, false)).toEqual({ dtypes: ['q8_0', 'q8_0', 'q8_0'], areInterleaved: true });
  expect(neuronRows(same, true).areInterleaved).toBe(false);
  expect(neuronRows({ ...same, down: 'q6_K' }, false)).toEqual({
    dtypes: ['q8_0', 'q8_0', 'q6_K'],
    areInterleaved: false,
  });
  expect(neuronRows({ ...same, gate: undefined }, false)).toEqual({ dtypes: ['q8_0', 'q8_0'], areInterleaved: false });
});
