import { parseAttention } from '@winnow/sparse-attention';
import { expect, it } from 'vitest';
import { densityOf } from './density.js';

const of = (text: string, phase: 'prefill' | 'decode', numTokens = 64): number | undefined =>
  densityOf({ attention: parseAttention(text) }, phase, { numTokens, numLayers: 4 });

it('pairs of a text by hand', () => {
  const dense = (64 * 65) / 2;
  expect(of('dense', 'prefill')).toBe(1);
  // the first 16 queries see 1 to 16 keys, the others 16
  expect(of('sparq:topk=16', 'decode')).toBeCloseTo((136 + 48 * 16) / dense, 12);
  expect(of('oracle-topk:k=16', 'prefill')).toBeCloseTo((136 + 48 * 16) / dense, 12);
  // 4 sinks and 12 others
  expect(of('streaming:window=12,sinks=4', 'prefill')).toBeCloseTo((136 + 48 * 16) / dense, 12);
  // the published count of the specification
  expect(of('subquadratic', 'prefill', 512)).toBeCloseTo(59778 / (256 * 513), 12);
  expect(of('h2o:chunk=1024,local=256,heavy=256', 'prefill', 4096)).toBeCloseTo(3672064 / 8390656, 12);
});

it('is the mean over layers, and unknown where it depends on values', () => {
  const sparse = of('sparq:topk=16', 'decode') as number;
  expect(of('decode=sparq:topk=16;dense-first=1', 'decode')).toBeCloseTo((1 + 3 * sparse) / 4, 12);
  expect(of('decode=sparq:topk=16;dense-first=1', 'prefill')).toBe(1);
  expect(of('page-topk:epsilon=0.1', 'decode')).toBeUndefined();
});
