import { parseAttention } from '@winnow/sparse-attention';
import { expect, it } from 'vitest';
import { densityOf } from './density.js';

const of = (text: string, phase: 'prefill' | 'decode', numTokens = 64): Promise<number | undefined> =>
  densityOf({ attention: parseAttention(text) }, phase, { numTokens, numLayers: 4 });

it('pairs of a text by hand', async () => {
  const dense = (64 * 65) / 2;
  expect(await of('dense', 'prefill')).toBe(1);
  // the first 16 queries see 1 to 16 keys, the others 16
  expect(await of('sparq:topk=16', 'decode')).toBeCloseTo((136 + 48 * 16) / dense, 12);
  expect(await of('oracle-topk:k=16', 'prefill')).toBeCloseTo((136 + 48 * 16) / dense, 12);
  // 4 sinks and 12 others
  expect(await of('streaming:window=12,sinks=4', 'prefill')).toBeCloseTo((136 + 48 * 16) / dense, 12);
  // the published count of the specification
  expect(await of('subquadratic', 'prefill', 512)).toBeCloseTo(59778 / (256 * 513), 12);
  // a whole chunk, and for each of the others 16 local and 16 heavy tokens
  expect(await of('h2o:chunk=64,local=16,heavy=16', 'prefill', 256)).toBeCloseTo((4 * 2080 + 3 * 64 * 32) / 32896, 12);
});

it('is the mean over layers, and unknown for policies that depend on values', async () => {
  const sparse = (await of('sparq:topk=16', 'decode')) as number;
  expect(await of('decode=sparq:topk=16;dense-first=1', 'decode')).toBeCloseTo((1 + 3 * sparse) / 4, 12);
  expect(await of('decode=sparq:topk=16;dense-first=1', 'prefill')).toBe(1);
  expect(await of('page-topk:epsilon=0.1', 'decode')).toBeUndefined();
});
