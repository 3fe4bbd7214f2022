import { expect, it } from 'vitest';
import { describeBackends } from '../../test/backends.js';
import { outputErrors } from '../quality/metrics.js';
import { syntheticAttention } from '../quality/synthetic.js';
import { AttentionLayer } from './attention-layer.js';
import { attend } from './attend.js';

const { q, k, v } = syntheticAttention({ kind: 'sinks', seqLen: 200, numHeads: 4, numKvHeads: 2, headDim: 16 });
const seqLen = 200;
const sizes = { numHeads: 4, numKvHeads: 2, headDim: 16, capacity: seqLen };
const policies = [
  'streaming:window=16,sinks=0',
  'subquadratic:window=16,block=8,globals=none',
  'h2o:chunk=16,local=4,heavy=4',
];

describeBackends('delta correction', (backend, isReference) => {
  it.each(policies)('of %s is dense at anchors, and shifts the tokens in between', async (policy) => {
    const { out: dense, densePairs } = await attend('dense', q, k, v, { backend });
    const sparse = await attend(policy, q, k, v, { backend });
    const corrected = await attend(`${policy},delta=20`, q, k, v, { backend });
    let numAnchorKeys = 0;
    for (let i = 0; i < seqLen; i++) {
      const anchor = i - (i % 20);
      if (i === anchor) numAnchorKeys += i + 1;
      for (let head = 0; head < 4; head++) {
        for (const [d, value] of corrected.out.row(i, head).entries()) {
          const difference = dense.row(anchor, head)[d]! - sparse.out.row(anchor, head)[d]!;
          expect(value).toBeCloseTo(sparse.out.row(i, head)[d]! + difference, isReference ? 6 : 4);
        }
      }
    }
    expect(corrected.pairs).toBe(sparse.pairs + 4 * numAnchorKeys);
    expect(corrected.density).toBe(corrected.pairs / densePairs);
  });

  it.each(policies)(
    'of %s does not depend on the split of a prompt, and goes on after other tokens',
    async (policy) => {
      const prefill = `${policy},delta=20`;
      const { out: whole } = await attend(prefill, q, k, v, { backend });
      await using layer = new AttentionLayer({ ...sizes, backend, prefill });
      const part = (begin: number, end: number) => [q, k, v].map((tensor) => tensor.slice(begin, end)) as never;
      for (const [begin, end] of [
        [0, 7],
        [7, 41],
        [41, 60],
        [60, 130],
      ] as const) {
        const { out } = await layer.prefill(...(part(begin, end) as [typeof q, typeof k, typeof v]));
        for (let head = 0; head < 4; head++) {
          expect(Math.max(...outputErrors(whole.slice(begin, end), out, head))).toBeLessThan(isReference ? 1e-6 : 1e-4);
        }
      }
      await layer.decode(...(part(130, 145) as [typeof q, typeof k, typeof v]));
      const { out } = await layer.prefill(...(part(145, 170) as [typeof q, typeof k, typeof v]));
      const { out: dense } = await attend('dense', q, k, v, { backend });
      // the first token of a block that the correction comes to is its anchor: 145 and 160
      for (const anchor of [145, 160]) {
        for (let head = 0; head < 4; head++) {
          const errors = outputErrors(dense.slice(anchor, anchor + 1), out.slice(anchor - 145, anchor - 144), head);
          expect(errors[0]).toBeLessThan(isReference ? 1e-6 : 1e-4);
        }
      }
    },
  );
});

describeBackends('delta correction of a truncated layer', (backend, isReference) => {
  it('has no anchor that was truncated', async () => {
    const prefill = 'streaming:window=16,sinks=0,delta=64';
    await using layer = new AttentionLayer({ ...sizes, backend, prefill });
    const part = (begin: number, end: number) =>
      [q, k, v].map((tensor) => tensor.slice(begin, end)) as [typeof q, typeof k, typeof v];
    await layer.prefill(...part(0, 130));
    await layer.truncate(100); // and with it the anchor at 128
    await layer.decode(...part(100, 135));
    const { out } = await layer.prefill(...part(135, 150));
    const { out: dense } = await attend('dense', q, k, v, { backend });
    for (let head = 0; head < 4; head++) {
      const errors = outputErrors(dense.slice(135, 136), out.slice(0, 1), head);
      expect(errors[0]).toBeLessThan(isReference ? 1e-6 : 1e-4);
    }
  });
});
